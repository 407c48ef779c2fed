"""Writes that are safe to repeat, repeated.

Jobs and events have ids that were made before the first try. So when the reply to a commit is lost, the same call once
more tells what has become of it: what is there already is not written again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast.errors import OutcomeUnknown, StoreError

T = TypeVar("T")


async def until_known(write: Callable[[], Awaitable[T]]) -> T:
    """Write; if the outcome is unknown, once more. Raises `OutcomeUnknown` if it still is."""
    try:
        return await write()
    except OutcomeUnknown as unknown:
        try:
            return await write()
        except StoreError as error:  # whatever became of the second, the first may have been done
            raise unknown from error
