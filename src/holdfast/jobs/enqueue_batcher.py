"""Batches concurrent enqueues of one process into few store calls.

If no other call is in flight, an enqueue goes straight to the store: a single one is not delayed. Calls that arrive
meanwhile wait, and are sent together in the next call. So batches grow with concurrency: on a store that syncs each
commit to disk, a hundred callers cost hardly more than two.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from weakref import WeakKeyDictionary

from holdfast.errors import OutcomeUnknown, StoreUnavailable
from holdfast.model.job import NewJob
from holdfast.store.backend import Backend
from holdfast.store.values import Enqueued

MAX_BATCH = 1000
_Waiting = tuple[Sequence[NewJob], asyncio.Future[Sequence[Enqueued]]]


class _LoopQueue:
    """The enqueues that wait in one event loop."""

    def __init__(self) -> None:
        self.is_busy = False
        self.waiting: list[_Waiting] = []
        self.sender: asyncio.Task[None] | None = None


class EnqueueBatcher:
    """Batches the enqueues of one app; each call gets its own result or error."""

    def __init__(self) -> None:
        self._queues: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopQueue] = WeakKeyDictionary()

    async def enqueue(self, backend: Backend, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        """Enqueue jobs, all or none; see `JobStore.enqueue` for the answers."""
        loop = asyncio.get_running_loop()
        queue = self._queues.get(loop)
        if queue is None:
            queue = self._queues[loop] = _LoopQueue()
        if queue.is_busy:
            answer: asyncio.Future[Sequence[Enqueued]] = loop.create_future()
            queue.waiting.append((jobs, answer))
            return await answer
        queue.is_busy = True
        try:
            return await backend.jobs.enqueue(jobs)
        finally:
            if queue.waiting:
                queue.sender = loop.create_task(self._send_waiting(backend, queue))
            else:
                queue.is_busy = False

    async def _send_waiting(self, backend: Backend, queue: _LoopQueue) -> None:
        try:
            while queue.waiting:
                await self._send(backend, _take(queue.waiting))
        finally:
            queue.is_busy = False
            queue.sender = None  # the task refers to its loop, which this entry would keep alive

    async def _send(self, backend: Backend, batch: list[_Waiting]) -> None:
        try:
            created = await backend.jobs.enqueue([job for jobs, _ in batch for job in jobs])
        except (StoreUnavailable, OutcomeUnknown) as error:
            for _, answer in batch:
                _fail(answer, error)
        except Exception as error:  # noqa: BLE001 - raised in each caller of the batch
            if len(batch) == 1:
                _fail(batch[0][1], error)
            else:
                for alone in batch:
                    await self._send(backend, [alone])
        else:
            start = 0
            for jobs, answer in batch:
                if not answer.done():
                    answer.set_result(created[start : start + len(jobs)])
                start += len(jobs)


def _take(waiting: list[_Waiting]) -> list[_Waiting]:
    """Remove and return the first enqueues that fit into one call; at least one."""
    size = count = 0
    for jobs, _ in waiting:
        size += len(jobs)
        if count and size > MAX_BATCH:
            break
        count += 1
    batch = waiting[:count]
    del waiting[:count]
    return batch


def _fail(answer: asyncio.Future[Sequence[Enqueued]], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
