"""The audit log as a file: one JSON object in each line, the newest first."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from holdfast.server.access import Role
from holdfast.server.dashboard.going import enter
from holdfast.server.state import state_of

if TYPE_CHECKING:
    from holdfast.app.app import App
    from holdfast.app.audit import AuditEntry

_AT_ONCE: Final = 1000
_encode = msgspec.json.Encoder().encode


async def export_audit(request: Request) -> Response:
    """Answer with all entries that are kept, a thousand with each statement."""
    await enter(request, Role.READ)
    app = state_of(request).app
    first = await _page(app, None)
    headers = {"content-disposition": 'attachment; filename="holdfast-audit.jsonl"'}
    return StreamingResponse(_lines(app, first), headers=headers, media_type="application/x-ndjson")


async def _lines(app: App, entries: Sequence[AuditEntry]) -> AsyncGenerator[bytes]:
    while entries:
        yield b"".join(_encode(entry) + b"\n" for entry in entries)
        entries = await _page(app, entries[-1].id) if len(entries) == _AT_ONCE else ()


async def _page(app: App, before: str | None) -> Sequence[AuditEntry]:
    return await app.audit.list(_AT_ONCE, before=before)
