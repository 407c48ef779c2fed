"""Writes the limits that the code declares, when a worker starts."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from holdfast.errors import OutcomeUnknown, StoreUnavailable
from holdfast.model.limits import Limit, LimitKey
from holdfast.store.backend import Backend

DeclaredLimits = Mapping[LimitKey, Limit | None]
_logger = logging.getLogger("holdfast.worker")


async def open_with_limits(backend: Backend, limits: DeclaredLimits) -> None:
    """Open the store, and write the limits that were changed in the code since the last time; others stay."""
    await backend.open()
    if not limits:
        return
    for key in await _declare(backend, limits):
        what = f"each key of task {key.name}" if key.kind == "key" else f"{key.kind} {key.name}"
        _logger.info("the limit of %s is now %s, as the code declares", what, limits[key] or "removed")


async def _declare(backend: Backend, limits: DeclaredLimits) -> Sequence[LimitKey]:
    """Write the limits, again if the reply to the commit was lost: a repeat changes nothing that is written."""
    try:
        return await backend.queues.declare(limits)
    except OutcomeUnknown as unknown:
        _logger.warning("writing the declared limits again: %s", unknown)
    try:
        return await backend.queues.declare(limits)
    except OutcomeUnknown as unknown:
        raise StoreUnavailable(str(unknown)) from unknown
