"""Writes that are safe to repeat, repeated.

Jobs and events have ids that were made before the first try. So when the reply of a server to a commit is lost, the
same call once more tells what has become of it: what is there already is not written again. It tells nothing where the
commit itself failed to reach the disk, as on SQLite: that is for the caller to know.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast.errors import OutcomeUnknown, StoreError
from holdfast.store.backend import Backend

T = TypeVar("T")


async def until_known(backend: Backend, write: Callable[[], Awaitable[T]]) -> T:
    """Write; if the outcome is unknown and a repeat can tell, once more. Raises `OutcomeUnknown` if it still is."""
    try:
        return await write()
    except OutcomeUnknown as unknown:
        if not backend.capabilities.repeats_tell:
            raise
        try:
            return await write()
        except StoreError as error:  # whatever became of the second, the first may have been done
            raise unknown from error
