"""Tokens, the audit log, and bulk operations."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from holdfast.app.bulk import JobSelection, error_shape
from holdfast.app.operation import OperationAction, OperationView
from holdfast.server.access import Role
from holdfast.server.api.fields import NoFields
from holdfast.server.api.operation import Answer, ApiCall, Need, Operation, by_id
from holdfast.server.api.queue_schemas import Changed
from holdfast.server.api.record_schemas import (
    AuditPage,
    NewToken,
    NewTokenRequest,
    OperationList,
    OperationRequest,
    PageQuery,
    ShownEntry,
    ShownOperation,
    ShownPreview,
    ShownToken,
    TokenList,
)
from holdfast.server.api.shown import shown
from holdfast.server.auditing import AuditNote, note_on

# --- tokens -----------------------------------------------------------------------------------------------------------


async def create_token(call: ApiCall[NoFields, NewTokenRequest]) -> Answer:
    """Create a token and return its text, which cannot be shown again."""
    text = await call.app.tokens.create(call.body.name, call.body.scopes, lasts=call.body.lasts_seconds)
    note = AuditNote("token.create", call.body.name, " ".join(call.body.scopes))
    return Answer(NewToken(call.body.name, text), 201, note=note)


async def list_tokens(call: ApiCall[NoFields, NoFields]) -> Answer:
    """List all tokens, without their texts."""
    found = await call.app.tokens.list()
    return Answer(
        TokenList([shown(ShownToken, token, scopes=[str(scope) for scope in token.scopes]) for token in found])
    )


async def revoke_token(call: ApiCall[NoFields, NoFields]) -> Answer:
    """Delete a token, which is refused from then on."""
    name = call.path("token")
    return Answer(Changed(name, await call.app.tokens.revoke(name)))


# --- the audit log ----------------------------------------------------------------------------------------------------


async def list_audit(call: ApiCall[PageQuery, NoFields]) -> Answer:
    """List who changed what, the newest first."""
    entries = await call.app.audit.list(call.query.limit, before=call.query.before)
    return Answer(AuditPage([shown(ShownEntry, entry) for entry in entries]))


# --- bulk operations --------------------------------------------------------------------------------------------------


async def start_operation(call: ApiCall[NoFields, OperationRequest]) -> Answer:
    """Retry, cancel or delete all jobs that a filter selects, in the background; or only count them.

    To delete, the scope `admin` is needed.
    """
    body = call.body
    if body.action == OperationAction.DELETE.value:
        call.check_role(Role.ADMIN)
    selection = JobSelection(
        body.state, body.queue, body.task, timedelta(seconds=body.older_than_seconds), error_shape(body.error) or None
    )
    if body.preview:
        found = await call.app.operations.preview(body.action, selection)
        return Answer(shown(ShownPreview, found), is_change=False)
    begun = await call.app.operations.start(body.action, selection, call.caller.subject, reason=body.reason)
    call.state.operating.begin()
    return Answer(_operation(begun), 202, note=note_on(begun, body.reason))


async def list_operations(call: ApiCall[PageQuery, NoFields]) -> Answer:
    """List bulk operations, the last started first."""
    found = await call.app.operations.list(call.query.limit, before=call.query.before)
    return Answer(OperationList([_operation(view) for view in found]))


async def show_operation(call: ApiCall[NoFields, NoFields]) -> Answer:
    """Return a bulk operation and its progress."""
    return Answer(_operation(await call.app.operations.get(call.path("operation_id"))))


async def cancel_operation(call: ApiCall[NoFields, NoFields]) -> Answer:
    """End a bulk operation before its next chunk; what it has changed stays changed."""
    return Answer(_operation(await call.app.operations.cancel(call.path("operation_id"))))


def _operation(view: OperationView) -> ShownOperation:
    return shown(
        ShownOperation,
        view,
        action=view.action.value,
        state=view.state.value,
        job_state=view.selection.state,
        queue=view.selection.queue,
        task=view.selection.task,
        error=view.selection.error,
        expected=shown(ShownPreview, view.expected),
        counts=dict(view.counts),
    )


_OPERATION: Final = "/v1/operations/{operation_id}"
OPERATIONS: Final = (
    Operation("GET", "/v1/tokens", list_tokens, Need.ADMIN, {200: TokenList}),
    Operation(
        "POST",
        "/v1/tokens",
        create_token,
        Need.ADMIN,
        {201: NewToken},
        body=NewTokenRequest,
        links=by_id("token", "revoke_token", at="name"),
    ),
    Operation("DELETE", "/v1/tokens/{token}", revoke_token, Need.ADMIN, {200: Changed}),
    Operation("GET", "/v1/audit", list_audit, Need.READ, {200: AuditPage}, query=PageQuery),
    Operation(
        "POST",
        "/v1/operations",
        start_operation,
        Need.OPERATE,
        {200: ShownPreview, 202: ShownOperation},
        body=OperationRequest,
        links=by_id("operation_id", "show_operation", "cancel_operation"),
    ),
    Operation("GET", "/v1/operations", list_operations, Need.READ, {200: OperationList}, query=PageQuery),
    Operation("GET", _OPERATION, show_operation, Need.READ, {200: ShownOperation}),
    Operation("POST", f"{_OPERATION}/cancel", cancel_operation, Need.OPERATE, {200: ShownOperation}),
)
