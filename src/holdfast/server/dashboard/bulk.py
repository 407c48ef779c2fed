"""Actions on many jobs: first a preview with their number, then an operation in the background, or some calls at once.

All that match a filter are changed by an operation (`app.operations`), chunk by chunk, which survives this process.
Rows selected by hand are at most those of one page: they are changed at once, each by its own verb.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from holdfast.app.app import App
from holdfast.app.operation import OperationAction, OperationState
from holdfast.errors import ConfigError, HoldfastError
from holdfast.model.counted import counted
from holdfast.model.ids import check_id
from holdfast.model.job import JobState
from holdfast.server.access import Caller, Role
from holdfast.server.auditing import note_on, record, recording_doubt
from holdfast.server.dashboard.actions import Action, done, unchanged
from holdfast.server.dashboard.forms import Form, read_form
from holdfast.server.dashboard.frame import ActionNotice, frame_of, page_response, render
from holdfast.server.dashboard.going import enter, go_back
from holdfast.server.dashboard.read.jobs import SHOWN
from holdfast.server.dashboard.read.preview import read_preview, read_selected, selection_of
from holdfast.server.dashboard.read.query import JobsQuery, job_query
from holdfast.server.problems import problem_of
from holdfast.server.state import state_of
from holdfast.store.values import Cancellation

_IDS_OF_ENTRY: Final = 25  # an entry of the audit log has room for 1,000 bytes of detail


def role_for(verb: str) -> Role:
    """Return the role that a verb on many jobs needs: what is deleted cannot be brought back."""
    return Role.ADMIN if verb == OperationAction.DELETE else Role.OPERATE


async def preview(request: Request) -> Response:
    """Show what an operation would change, and ask."""
    given = Form(request.query_params.multi_items())
    verb = given.require("verb")
    caller = await enter(request, role_for(verb))
    app, query = state_of(request).app, job_query(given.fields, JobState.FAILED)
    ids = _ids_of(given)
    if given.get("of") == "selected":
        if not ids:
            raise ConfigError("no job is selected: tick some rows, or choose all that match")
        screen = await read_selected(app, verb, query, ids)
    else:
        screen = await read_preview(app, verb, query)
    frame = frame_of(request, caller)
    return page_response(render("preview.html", frame, {"title": "Preview", "screen": screen}), frame)


def _ids_of(form: Form) -> list[str]:
    """Return the ids of the selected rows; raises `ConfigError` for what is no id."""
    return [check_id(text) for text in form.all("id")[:SHOWN]]


async def start(request: Request) -> Response:
    """Do what the preview has shown."""
    caller = await enter(request, Role.OPERATE)
    form = await read_form(request)
    verb = form.require("verb")
    await enter(request, role_for(verb))
    state, query, ids = state_of(request), job_query(form.fields, JobState.FAILED), _ids_of(form)
    if ids:
        notice = await _change_each(request, caller, form, query, ids)
        return go_back(request, caller, f"/jobs?{query.url()}", notice)
    reason = form.get("reason")
    selection = selection_of(query)
    async with recording_doubt(request, caller, f"jobs.{verb}", str(selection)):
        begun = await state.app.operations.start(verb, selection, caller.subject, reason=reason)
    state.operating.begin()
    note = note_on(begun, reason)
    await record(request, caller, note.action, note.target, note.detail)
    return go_back(request, caller, "/operations", done(f"The operation has begun: {verb} {begun.expected} jobs."))


async def _change_each(
    request: Request, caller: Caller, form: Form, query: JobsQuery, ids: Sequence[str]
) -> ActionNotice:
    """Change the selected jobs that are still in the state in which they were selected; record which were changed."""
    app, verb = state_of(request).app, form.require("verb")
    screen = await read_selected(app, verb, query, ids)
    changed: list[str] = []
    try:
        for job_id in screen.ids:
            async with recording_doubt(request, caller, f"jobs.{verb}", job_id):
                if await _change(app, verb, job_id, form.get("reason")):
                    changed.append(job_id)
    except HoldfastError as error:
        if not changed:
            raise
        return unchanged(f"{counted(len(changed), 'job')} changed, then: {problem_of(error).detail}")
    finally:
        for first in range(0, len(changed), _IDS_OF_ENTRY):
            named = changed[first : first + _IDS_OF_ENTRY]
            await record(request, caller, f"jobs.{verb}", counted(len(named), "selected job"), " ".join(named))
    left = len(ids) - len(changed)
    text = f"{counted(len(changed), 'job')} of {len(ids)} changed."
    return unchanged(f"{text} The others are not {query.state} any more.") if left else done(text)


async def _change(app: App, verb: str, job_id: str, reason: str) -> bool:
    match OperationAction(verb):
        case OperationAction.RETRY:
            return await app.jobs.retry(job_id)
        case OperationAction.CANCEL:
            return await app.jobs.cancel(job_id, reason) is not Cancellation.TOO_LATE
        case OperationAction.DELETE:
            await app.jobs.delete(job_id)
            return True


async def _cancel_operation(app: App, operation_id: str, _: Form) -> ActionNotice:
    view = await app.operations.cancel(operation_id)
    if view.state is OperationState.DONE:
        return unchanged("The operation was done already.")
    return done("The operation ends before its next chunk; what it has changed stays changed.")


ON_OPERATIONS = {"cancel": Action("operation.cancel", Role.OPERATE, _cancel_operation)}
