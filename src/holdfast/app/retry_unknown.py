"""Repeat a write whose outcome is unknown, where that is safe.

Jobs and events have ids that are generated before the first attempt. When a server's reply to a commit is lost, the
same call shows what happened: existing rows are not written again. It shows nothing where the commit itself failed to
reach the disk, as on SQLite: there the caller gets `OutcomeUnknown`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast.errors import OutcomeUnknown, StoreError
from holdfast.store.backend import Backend

T = TypeVar("T")


async def repeat_unknown(backend: Backend, unknown: OutcomeUnknown, write: Callable[[], Awaitable[T]]) -> T:
    """Write once more if that tells the outcome of the first write; otherwise raise `unknown`."""
    if not backend.capabilities.repeat_shows_outcome:
        raise unknown
    try:
        return await write()
    except StoreError as error:  # the first write may have been committed, whatever happened to the second
        raise unknown from error
