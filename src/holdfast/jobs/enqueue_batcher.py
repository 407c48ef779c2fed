"""Many enqueues at once from one process become few calls of the store.

A call that finds nobody else under way goes straight to the store: a lone enqueue is not delayed. Those that come while
it is under way wait, and go together in the next call. So the more there are, the larger the batches: on a store that
syncs each commit to disk, a hundred callers cost hardly more than two.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from weakref import WeakKeyDictionary

from holdfast.errors import OutcomeUnknown, StoreUnavailable
from holdfast.model.job import NewJob
from holdfast.store.jobs import JobStore

MAX_BATCH = 1000
_Waiting = tuple[Sequence[NewJob], asyncio.Future[list[bool]]]


class _Line:
    """Who waits in one event loop."""

    def __init__(self) -> None:
        self.is_busy = False
        self.waiting: list[_Waiting] = []
        self.server: asyncio.Task[None] | None = None


class EnqueueBatcher:
    """Joins enqueues of one app; each keeps its own answer and its own error."""

    def __init__(self, store: Callable[[], JobStore]) -> None:
        self._store = store
        self._lines: WeakKeyDictionary[asyncio.AbstractEventLoop, _Line] = WeakKeyDictionary()

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[bool]:
        """Enqueue jobs, all or none; True for each that is new."""
        loop = asyncio.get_running_loop()
        line = self._lines.get(loop)
        if line is None:
            line = self._lines[loop] = _Line()
        if line.is_busy:
            answer: asyncio.Future[list[bool]] = loop.create_future()
            line.waiting.append((jobs, answer))
            return await answer
        line.is_busy = True
        try:
            return await self._store().enqueue(jobs)
        finally:
            if line.waiting:
                line.server = loop.create_task(self._serve(line))
            else:
                line.is_busy = False

    async def _serve(self, line: _Line) -> None:
        try:
            while line.waiting:
                await self._send(_take(line.waiting))
        finally:
            line.is_busy = False
            line.server = None  # the task knows its loop: the line would keep it alive

    async def _send(self, batch: list[_Waiting]) -> None:
        try:
            created = await self._store().enqueue([job for jobs, _ in batch for job in jobs])
        except (StoreUnavailable, OutcomeUnknown) as error:
            for _, answer in batch:
                _fail(answer, error)
        except Exception as error:  # noqa: BLE001 - told to its caller, and to nobody else
            if len(batch) == 1:
                _fail(batch[0][1], error)
            else:
                for alone in batch:
                    await self._send([alone])
        else:
            start = 0
            for jobs, answer in batch:
                if not answer.done():
                    answer.set_result(created[start : start + len(jobs)])
                start += len(jobs)


def _take(waiting: list[_Waiting]) -> list[_Waiting]:
    """Take from the front what fits into one call; at least one."""
    size = count = 0
    for jobs, _ in waiting:
        size += len(jobs)
        if count and size > MAX_BATCH:
            break
        count += 1
    batch = waiting[:count]
    del waiting[:count]
    return batch


def _fail(answer: asyncio.Future[list[bool]], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
