"""Record who changed what, in the audit log of the store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import msgspec
from starlette.requests import Request

from holdfast.app.operation import OperationView
from holdfast.errors import OutcomeUnknown, StoreError
from holdfast.server.access import Caller
from holdfast.server.state import state_of

_logger = logging.getLogger("holdfast.server")
_PATIENCE: Final = 10.0  # seconds


class AuditNote(msgspec.Struct, frozen=True):
    """What the audit log says about a change, besides who made it."""

    action: str
    target: str
    detail: str = ""


def note_on(begun: OperationView, reason: str) -> AuditNote:
    """Return the note on a bulk operation that has begun."""
    detail = f"operation {begun.id}, {begun.expected} jobs" + (f": {reason}" if reason else "")
    return AuditNote(f"jobs.{begun.action}", str(begun.selection), detail)


@asynccontextmanager
async def recording_doubt(
    request: Request, caller: Caller, action: str, target: str, detail: str = ""
) -> AsyncGenerator[None]:
    """Record that a change may have been made if the block ends without its outcome, by an error or by cancellation."""
    try:
        yield
    except (OutcomeUnknown, asyncio.CancelledError):
        await record(request, caller, action, target, f"outcome unknown {detail}".rstrip())
        raise


async def record(request: Request, caller: Caller, action: str, target: str, detail: str = "") -> None:
    """Record a change that was made.

    If the store fails or hangs now, or the request ends meanwhile, the entry goes to the log of the server: the change
    is made, and its caller must know.
    """
    origin = "" if request.client is None else request.client.host
    try:
        async with asyncio.timeout(_PATIENCE):
            await state_of(request).app.audit.record(caller.subject, action, target, detail, origin=origin)
    except (StoreError, TimeoutError, asyncio.CancelledError) as error:
        was_cancelled = isinstance(error, asyncio.CancelledError)
        why = "the request was broken off" if was_cancelled else str(error) or "the store took too long"
        _logger.error(  # noqa: TRY400 - the traceback would say nothing more
            "not in the audit log (%s): %s did %s to %s %s, from %s",
            why, caller.subject, action, target, detail, origin,
        )  # fmt: skip
        if was_cancelled:
            raise
