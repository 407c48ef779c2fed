"""Releases the leases and partitions of dead workers, from a separate process that may fail.

The supervisor opens no connection and starts no thread: a connection would be shared by every child that it forks
later, and a thread may hold a lock at that moment. So a helper is forked for each round, releases what all waiting dead
workers held, and ends. One helper runs at a time; one that hangs is ended by its own alarm; one that fails is
followed by another, with growing delays. A new death starts a helper at once: the store may be back.
"""

from __future__ import annotations

import logging
import os
import signal
import time
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from holdfast.errors import StoreUnavailable
from holdfast.runtime.exit_code import ExitCode
from holdfast.worker.supervision.children import describe, fork
from holdfast.worker.supervision.restarts import Delays

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from holdfast.worker.supervision.joined_logs import JoinedLogs, Source

_HANG: Final = 10  # seconds after which a helper's alarm ends it
_KEEP: Final = 300.0  # seconds after which the leases have long expired


@dataclass(frozen=True, slots=True)
class _Dead:
    worker_id: str
    reason: str
    since: float


@dataclass(frozen=True, slots=True)
class _Helper:
    pid: int
    round: tuple[_Dead, ...]
    source: Source


class ReleaseHelper:
    """The dead workers whose leases are not released yet, and the process that releases them.

    `release(worker_id, reason)` must be safe to repeat. `close` returns the descriptors that the process must close.
    """

    def __init__(
        self, release: Callable[[str, str], None], logs: JoinedLogs, *, close: Callable[[], Iterable[int]]
    ) -> None:
        self._release = release
        self._logs = logs
        self._close = close
        self._delays = Delays()
        self._waiting: list[_Dead] = []
        self._helper: _Helper | None = None
        self._failures = 0
        self._try_at = 0.0

    @property
    def is_empty(self) -> bool:
        """Whether every lease has been released."""
        return not self._waiting and self._helper is None

    @property
    def due(self) -> float | None:
        """When `advance` has something to do; None while a helper runs or nothing waits."""
        return self._try_at if self._waiting and self._helper is None else None

    def add(self, worker_id: str, reason: str) -> None:
        """Add a dead worker whose leases are to be released."""
        self._waiting.append(_Dead(worker_id, reason, time.monotonic()))
        self._try_at = 0.0

    def advance(self) -> None:
        """Start a helper if one is due."""
        now = time.monotonic()
        if self._helper is not None or not self._waiting or now < self._try_at:
            return
        for dead in [dead for dead in self._waiting if now - dead.since > _KEEP]:
            self._waiting.remove(dead)
            self._abandon(dead)
        if self._waiting:
            self._start(tuple(self._waiting))

    def note_ends(self, ended: Mapping[int, int]) -> None:
        """Check whether the helper is among the processes that ended."""
        helper = self._helper
        if helper is None or (code := ended.get(helper.pid)) is None:
            return
        self._helper = None
        self._logs.end(helper.source)
        if code == 0:
            self._failures = 0
            self._waiting = [dead for dead in self._waiting if dead not in helper.round]
            return
        is_fresh = any(dead not in helper.round for dead in self._waiting)
        self._put_off(describe(code))
        if is_fresh:  # another worker has died since: the helper did not know of it
            self._try_at = 0.0

    def give_up(self) -> None:
        """Leave the remaining leases to expire, and log it."""
        if self._helper is not None:
            os.kill(self._helper.pid, signal.SIGKILL)
            os.waitpid(self._helper.pid, 0)
            self._logs.end(self._helper.source)
            self._helper = None
        for dead in self._waiting:
            self._abandon(dead)
        self._waiting.clear()

    def _start(self, dead: tuple[_Dead, ...]) -> None:
        try:
            pid, output = fork(lambda: self._run(dead), close=self._close())
        except OSError as error:  # out of memory or processes
            self._put_off(str(error))
        else:
            self._helper = _Helper(pid, dead, self._logs.add(output, "release"))

    def _put_off(self, why: str) -> None:
        delay = self._delays.after(self._failures)
        self._failures += 1
        self._try_at = time.monotonic() + delay
        names = ", ".join(dead.worker_id for dead in self._waiting)
        self._logs.say(f"leases of {names} not released ({why}); retrying in {delay:g} s", logging.WARNING)

    def _abandon(self, dead: _Dead) -> None:
        self._logs.say(f"leases of {dead.worker_id} not released; they will expire", logging.WARNING)

    def _run(self, round_: tuple[_Dead, ...]) -> int:
        """Run in the helper: release each dead worker, even if releasing another fails."""
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_HANG)
        code = 0
        for dead in round_:
            try:
                self._release(dead.worker_id, dead.reason)
            except StoreUnavailable as error:
                print(f"{dead.worker_id}: {error}", flush=True)  # noqa: T201 - standard output is the joined log
                code = ExitCode.TEMPORARY
            except Exception:  # noqa: BLE001 - one failure must not prevent the others
                traceback.print_exc()
                code = ExitCode.TEMPORARY
        return code
