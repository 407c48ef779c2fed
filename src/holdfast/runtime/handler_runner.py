"""Runs handlers of tasks and of consumers in this process: async ones in the event loop, plain functions in threads.

An async handler is cancelled at its time limit. A thread cannot be stopped, so a late one is reported and waited for.
`limits` holds the end of each time limit for the thread that finds stuck handlers (`runtime.keeper_thread`): a blocked
event loop cannot apply a limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic, TypeVar

from holdfast.runtime.threads import Threads

T = TypeVar("T")


class TimeLimitReached(TimeoutError):  # noqa: N818 - reads as the sentence it states
    """The attempt was ended at its time limit."""

    def __init__(self, limit: float) -> None:
        super().__init__(f"the attempt was ended at its time limit of {limit:g} s")
        self.limit = limit


class HandlerRunner(Generic[T]):
    """Runs handlers, each on behalf of a subject: a job, or the grant of a share."""

    def __init__(self, threads: str, *, clock: Callable[[], float]) -> None:
        """`threads` is the name of its threads; `clock` is that of the thread that finds stuck handlers."""
        self._threads = Threads(threads)
        self._clock = clock
        self.limits: dict[Hashable, tuple[float, T]] = {}

    async def in_loop(self, call: Callable[[], Awaitable[Any]], subject: T, key: Hashable, limit: float | None) -> Any:
        """Await an async handler; raise `TimeLimitReached` if it was cancelled at its limit."""
        if limit is None:
            return await call()
        scope = asyncio.timeout(limit)
        self.limits[key] = (self._clock() + limit, subject)
        try:
            async with scope:
                return await call()
        except TimeoutError as error:
            if scope.expired():
                raise TimeLimitReached(limit) from error
            raise
        finally:
            self.limits.pop(key, None)

    def in_thread(
        self,
        call: Callable[[], Any],
        subject: T,
        key: Hashable,
        limit: float | None = None,
        *,
        late: Callable[[], None] = lambda: None,
    ) -> Awaitable[Any]:
        """Start a plain function in a thread; return an awaitable of its end. `late` is called if it is past its limit.

        Raises at once if the system refuses a new thread. Cancelling the awaitable does not end the thread.
        """
        future = self._threads.run(call)
        return asyncio.shield(future) if limit is None else self._limited(future, subject, key, limit, late)

    async def _limited(
        self, future: asyncio.Future[Any], subject: T, key: Hashable, limit: float, late: Callable[[], None]
    ) -> Any:
        self.limits[key] = (self._clock() + limit, subject)
        try:
            await asyncio.wait({future}, timeout=limit)
            if not future.done():
                late()
            return await asyncio.shield(future)
        finally:
            self.limits.pop(key, None)

    def close(self) -> None:
        """End the idle threads; busy ones end after their current function."""
        self._threads.close()
