"""Waits for the ends of jobs: everything in one event loop that waits for jobs of an app, looked up together.

```text
   result(), wait() ──▶ JobWaits ── one statement for all waiting jobs ──▶ the store
                          ▲   at once for new ones; all of them when jobs may have ended, and every second
                          └── notifications of ends
```

Polling is authoritative; notifications make it quick. Workers in other processes notify of ends only if they know that
something waits. A job may end before they know: so the jobs are looked up a few more times soon after the announcement.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from holdfast.model.job import FINAL_STATES
from holdfast.store.backend import Backend, Notifier
from holdfast.store.job_lists import SeenJob
from holdfast.store.verbs.job_admin import not_found

if TYPE_CHECKING:
    from holdfast.app.app import App

_AFTER_ANNOUNCEMENT: Final = (0.005, 0.015, 0.04, 0.1)  # seconds
_POLL_EVERY: Final = 1.0
_ANNOUNCE_EVERY: Final = 2.0
_LISTEN_FOR: Final = 10.0  # seconds after the last wait: the next one is often near, and connecting takes time
_SHORTEST_REST: Final = 0.002
# After a look, rest four times as long as it took, so that many waits take only a part of the store's time; but at most
# this long for each statement, because on a busy machine a look takes long for other reasons.
_REST_PART: Final = 4
_LONGEST_REST: Final = 0.02
MOST_AT_ONCE: Final = 1000
"""The maximum number of jobs in one statement."""


class Waiter:
    """One that waits for the end of a job; `seen` is the state at the last look."""

    __slots__ = ("ended", "seen")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.ended: asyncio.Future[SeenJob] = loop.create_future()
        self.seen: str | None = None


class JobWaits:
    """All waits of one event loop."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[str, list[Waiter]] = {}
        self._new: list[str] = []
        self._looks_at_all = False
        self._woken = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self._notifier: Notifier | None = None
        self._unlisten: Callable[[], None] | None = None
        self._stops_listening: asyncio.TimerHandle | None = None
        self._announced_at = float("-inf")

    def add(self, job_id: str) -> Waiter:
        """Begin to wait for a job; call `remove` afterwards."""
        waiter = Waiter(self._loop)
        self._waiting.setdefault(job_id, []).append(waiter)
        self._new.append(job_id)
        self._woken.set()
        if self._watching is None:
            # Without the caller's context variables: it may be in a transaction, which these looks must not join.
            self._watching = self._loop.create_task(self._watch(), context=contextvars.Context())
        return waiter

    def remove(self, job_id: str, waiter: Waiter) -> None:
        """End a wait."""
        waiters = self._waiting.get(job_id, [])
        if waiter in waiters:
            waiters.remove(waiter)
            if not waiters:
                del self._waiting[job_id]
                self._woken.set()

    # --- looking ------------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        try:
            await self._look_until_none_waits()
        except Exception as error:  # noqa: BLE001 - raised where it is waited
            self._break(error)
        except asyncio.CancelledError as error:
            self._break(error)
            raise
        finally:
            self._watching = None
            self._new.clear()
            if self._unlisten is not None and not self._loop.is_closed():
                self._stops_listening = self._loop.call_later(_LISTEN_FOR, self._stop_listening)

    def _break(self, error: BaseException) -> None:
        """Raise an error where it is waited."""
        for waiters in self._waiting.values():
            for waiter in waiters:
                if isinstance(error, asyncio.CancelledError):
                    waiter.ended.cancel()
                elif not waiter.ended.done():
                    waiter.ended.set_exception(error)
        self._waiting.clear()

    async def _look_until_none_waits(self) -> None:
        soon: list[float] = []
        while self._waiting:
            backend = await self._app.opened(install=False)
            self._listen(backend)
            soon += self._announce(backend)
            self._woken.clear()
            ids = [*self._waiting] if self._looks_at_all else [new for new in self._new if new in self._waiting]
            self._new, self._looks_at_all = [], False
            began = self._loop.time()
            await self._look(backend, ids)
            looked = self._loop.time()
            soon = [due for due in soon if due > looked]
            timer = self._loop.call_at(soon[0] if soon else looked + _POLL_EVERY, self._look_at_all)
            try:
                await self._woken.wait()
            finally:
                timer.cancel()
            rest = looked + _rest(len(ids), looked - began) - self._loop.time()
            if rest > 0 and self._waiting:
                await asyncio.sleep(rest)

    async def _look(self, backend: Backend, ids: Sequence[str]) -> None:
        for first in range(0, len(ids), MOST_AT_ONCE):
            chunk = ids[first : first + MOST_AT_ONCE]
            found = {job.id: job for job in await backend.insight.states(chunk)}
            for job_id in chunk:
                self._seen(job_id, found.get(job_id))

    def _seen(self, job_id: str, job: SeenJob | None) -> None:
        ended = job is None or job.state in FINAL_STATES
        for waiter in self._waiting.pop(job_id, ()) if ended else self._waiting.get(job_id, ()):
            if waiter.ended.done():  # its wait was cancelled, and will be removed
                continue
            if job is None:
                waiter.ended.set_exception(not_found(job_id))
            elif ended:
                waiter.ended.set_result(job)
            else:
                waiter.seen = job.state

    def _look_at_all(self) -> None:
        self._looks_at_all = True
        self._woken.set()

    # --- notifications ------------------------------------------------------------------------------------------------

    def _announce(self, backend: Backend) -> list[float]:
        """Announce the waits to other processes; return when to look again, before they can know of it."""
        now = self._loop.time()
        since = now - self._announced_at
        if since < _ANNOUNCE_EVERY:
            return []
        self._announced_at = now
        backend.notifier.expect_ends()
        return [now + pause for pause in _AFTER_ANNOUNCEMENT] if since > 2 * _ANNOUNCE_EVERY else []

    def _listen(self, backend: Backend) -> None:
        if self._stops_listening is not None:
            self._stops_listening.cancel()
            self._stops_listening = None
        if self._unlisten is not None and self._notifier is backend.notifier:
            return
        self._notifier = backend.notifier
        self._announced_at = float("-inf")
        self._unlisten = backend.notifier.listen_ends(self._notified)

    def _notified(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._look_at_all)
        except RuntimeError:  # the loop was closed, and these waits with it
            self._stop_listening()

    def _stop_listening(self) -> None:
        unlisten, self._unlisten = self._unlisten, None
        if unlisten is not None:
            unlisten()


def _rest(count: int, took: float) -> float:
    """Return how long to rest after a look for so many jobs."""
    statements = 1 + count // MOST_AT_ONCE
    return min(max(_SHORTEST_REST, _REST_PART * took), _LONGEST_REST * statements)


class WaitsOfApp:
    """The waits of an app, in each event loop."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._in_loops: dict[asyncio.AbstractEventLoop, JobWaits] = {}

    def here(self) -> JobWaits:
        """Return the waits of the running event loop."""
        loop = asyncio.get_running_loop()
        waits = self._in_loops.get(loop)
        if waits is None:
            for closed in [other for other in tuple(self._in_loops) if other.is_closed()]:
                with suppress(KeyError):
                    del self._in_loops[closed]
            waits = self._in_loops[loop] = JobWaits(self._app)
        return waits
