"""Extend leases, many at once, and send heartbeats of workers over HTTP.

Both go through the store's blocking connection for that, in one thread of the server.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeVar

from holdfast.concurrency.store_threads import store_thread_name
from holdfast.errors import StoreError
from holdfast.model.job import Lease
from holdfast.store.jobs import Extender
from holdfast.store.values import Extension, WorkerHeartbeat

if TYPE_CHECKING:
    from holdfast.server.access import Caller
    from holdfast.server.state import ServerState

T = TypeVar("T")
_logger = logging.getLogger("holdfast.server")
_MOST_WORKERS: Final = 10_000
_OFTEN: Final = 4
"""Heartbeats per lease; a worker whose last one is older than its lease is shown as silent."""
_RAREST: Final = 1.0  # second


def _is_of(worker: WorkerHeartbeat, caller: Caller) -> bool:
    queues = worker.queues
    return caller.queues is None or (queues is not None and caller.queues.issuperset(queues))


class Extending:
    """The extending thread of a server; it begins with the first call."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._thread: ThreadPoolExecutor | None = None
        self._extender: Extender | None = None
        self._workers: dict[str, tuple[WorkerHeartbeat, float]] = {}  # with when the next heartbeat is due

    async def extend(self, leases: Sequence[Lease], duration: timedelta) -> Extension:
        """Extend leases to `duration` from now."""
        return await self._run(lambda extender: extender.extend(leases, duration))

    async def heartbeat_if_due(self, worker: WorkerHeartbeat) -> None:
        """Send the heartbeat of a worker whose request has come, unless one was sent a moment ago."""
        now = time.monotonic()
        if now < self._workers.get(worker.worker_id, (worker, 0.0))[1]:
            return
        try:
            await self.heartbeat(worker)
        except StoreError as error:  # the request itself matters more
            _logger.warning("could not send the heartbeat of worker %s: %s", worker.worker_id, error)

    async def heartbeat(self, worker: WorkerHeartbeat) -> None:
        """Send the heartbeat of a worker; raises `StoreError`."""
        due = time.monotonic() + max(worker.lease.total_seconds() / _OFTEN, _RAREST)
        self._workers.pop(worker.worker_id, None)
        self._workers[worker.worker_id] = worker, due  # the last one: the first has the oldest heartbeat
        if len(self._workers) > _MOST_WORKERS:
            del self._workers[next(iter(self._workers))]
        await self._run(lambda extender: extender.heartbeat(worker))

    async def known_heartbeat_if_due(self, worker_id: str, caller: Caller) -> None:
        """Send the heartbeat of a worker that has claimed from this server before, if the caller may speak for it."""
        known = self._workers.get(worker_id)
        if known is not None and _is_of(known[0], caller):
            await self.heartbeat_if_due(known[0])

    async def may_speak_for(self, worker_id: str, caller: Caller) -> bool:
        """Whether the caller may send the heartbeat of a worker: not if that serves queues that the caller may not use.

        Otherwise a token for one queue could hide that a worker of another is dead, or overwrite what it serves.
        """
        known = self._workers.get(worker_id)
        if caller.queues is None or (known is not None and _is_of(known[0], caller)):
            return True
        views = await (await self._state.opened()).insight.workers()
        return all(_is_of(view.heartbeat, caller) for view in views if view.heartbeat.worker_id == worker_id)

    async def _run(self, work: Callable[[Extender], T]) -> T:
        backend = await self._state.opened()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix=store_thread_name("server"))

        def call() -> T:
            if self._extender is None:
                self._extender = backend.extender()
            try:
                return work(self._extender)
            except StoreError:
                self._forget()  # the next call connects again
                raise

        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def _forget(self) -> None:
        extender, self._extender = self._extender, None
        if extender is not None:
            extender.close()

    async def close(self) -> None:
        """Close the connection and end the thread."""
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.get_running_loop().run_in_executor(thread, self._forget)
            thread.shutdown(wait=False)
