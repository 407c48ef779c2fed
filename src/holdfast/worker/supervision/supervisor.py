"""Several workers as one program: start them, join their logs, restart dead ones, release the leases of dead ones.

A worker is one process, and a job can kill its process. Its leases would then last until they expire, 30 seconds by
default, and its partitions until its node has been silent for 12. A parent process is notified of the death at once,
and can make sure that no process of the dead worker is left. So under a supervisor a killed worker's jobs run
again within a second, and its partitions move within two.

Which process watches which:

```text
              ┌───────────────────────── supervisor ─────────────────────────┐
  SIGTERM ───▶│ one thread, no store connection: nothing that a fork can break│───▶ standard output
  SIGHUP      └──┬──────────────┬───────────────────────────┬───────────▲────┘     "[w1] …", "[w2] …"
        lifeline │      SIGCHLD │ SIGTERM                   │ forks     │ pipes: whole lines
      (pipe end) ▼      ▲       ▼                           ▼           │
   ┌─ group 1 ────────────────────────────┐  ┌─ group 2 ──────┐  ┌─ release helper ────────┐
   │ guardian ──kills──▶ w1 ──▶ its own   │  │ guardian   w2  │  │ after each death; opens │
   │                            children  │  │                │  │ the store, releases,    │
   └──────────────────────────────────────┘  └────────────────┘  │ ends                    │
                                                                 └─────────────────────────┘
```

- The **supervisor** watches the workers. When one ends, however it ends, the supervisor kills what is left of its
  process group, waits until the group is gone, and only then has the worker's leases released; so the next holder
  never runs at the same time as a leftover process of the last. It chose the worker's id before the fork (a new one
  for each incarnation), so it knows the leases to release. Orphans of a dead worker become children of the supervisor
  (Linux), which is notified of the end of each at once. The seat is filled again after a backoff.
- A **guardian** per group watches the supervisor, and kills its group when the supervisor dies; see
  `runtime.parent_death`. If the whole machine dies, leases expire, as without a supervisor.
- A **release helper** calls the store for the supervisor; see `supervision.release_helper`. It may fail or hang without
  affecting the supervisor.
- The release is not needed for safety: it makes recovery fast. If it reached the store too soon or twice, the store
  would still refuse the writes of an old holder by their fence.

Signals: SIGTERM and SIGINT (a terminal sends it to the supervisor alone, as the workers have separate groups) are
passed on as SIGTERM, each time they arrive, and end all restarts; a worker still running `kill_after` seconds after
the first is killed, and its leases are released. SIGHUP replaces the workers one by one, each when its predecessor has
drained; the first SIGTERM does not cut short a worker that drains for that, and SIGHUP has no effect after a SIGTERM. A
supervisor that is itself stopped (SIGSTOP) reads no logs: workers then block as soon as their pipe is full.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import threading
import time
from typing import TYPE_CHECKING, Final

from holdfast.errors import ConfigError
from holdfast.model.names import check_name
from holdfast.runtime.parent_death import Lifeline, adopt_orphans
from holdfast.worker.identity import incarnation
from holdfast.worker.supervision.children import WATCHED, ChildSeat, SupervisedChild, reap
from holdfast.worker.supervision.joined_logs import JoinedLogs
from holdfast.worker.supervision.release_helper import ReleaseHelper
from holdfast.worker.supervision.restarts import Delays, is_hopeless
from holdfast.worker.supervision.seats import Seat, SeatPhase

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import FrameType

__all__ = ["ChildSeat", "Supervisor"]

_LINE_EVERY: Final = 0.25  # seconds
_END_TIMEOUT: Final = 5.0  # seconds at the end for the last releases, and for a slow reader of the logs


class Supervisor:
    """Runs `count` children, each calling `run_child(seat)` and exiting with its return value.

    `release(worker_id, reason)` releases the leases of a dead worker; it runs in a separate process, may raise, and is
    repeated until it succeeds. `name` is the prefix of worker ids (`name-w1-5f0c9a3e`). Children that still run
    `kill_after` seconds after they were asked to end are killed: it must be longer than the workers' drain timeout. The
    joined logs go to the descriptor `sink`; if that is a terminal, `line` stands under them. A supervisor runs once,
    and while it runs it reaps every child of the process, including those that it did not start.
    """

    def __init__(
        self,
        count: int,
        run_child: Callable[[ChildSeat], int],
        *,
        release: Callable[[str, str], None],
        name: str = "",
        kill_after: float = 40.0,
        delays: Delays | None = None,
        sink: int = 1,
        line: Callable[[], str] | None = None,
    ) -> None:
        if count < 1:
            message = f"processes={count} is invalid: a supervisor needs at least one"
            raise ConfigError(message)
        self._run_child = run_child
        self._line = line
        self._line_due = 0.0
        self._kill_after = kill_after
        self._selector = selectors.PollSelector()
        self._logs = JoinedLogs(self._selector, sink=sink)
        self._releases = ReleaseHelper(release, self._logs, close=lambda: [*self._private(), *self._lifeline.ends])
        supervisor_id = incarnation(name or f"supervisor-{os.getpid()}")
        self._seats = [
            Seat(
                index,
                prefix=f"{check_name('worker', name)}-" if name else "",
                supervisor_id=supervisor_id,
                start=self._start_child,
                logs=self._logs,
                releases=self._releases,
                delays=delays or Delays(),
            )
            for index in range(1, count + 1)
        ]
        self._roll: list[Seat] = []
        self._stops_asked = self._stops_obeyed = 0
        self._is_roll_asked = self._has_child_ended = False

    def run(self) -> int:
        """Supervise until every seat is done; return the largest exit code of their last children (128 + n: signal n).

        Raises ConfigError where forking would not be safe.
        """
        if threading.current_thread() is not threading.main_thread() or threading.active_count() > 1:
            raise ConfigError(_why_not_fork())
        self._lifeline = Lifeline()
        self._wake_read, self._wake_write = os.pipe()
        adopt_orphans(True)
        try:
            with self._signals():
                while any(seat.phase is not SeatPhase.DONE for seat in self._seats):
                    self._turn()
                deadline = time.monotonic() + _END_TIMEOUT
                while not self._releases.is_empty and time.monotonic() < deadline:
                    self._turn(until=deadline)
                self._releases.give_up()
        finally:
            self._lifeline.cut()  # after an unexpected error too, no process is left behind
            adopt_orphans(False)
            self._logs.show("")
            self._logs.flush(within=_END_TIMEOUT)
            self._selector.close()
            os.close(self._wake_read)
            os.close(self._wake_write)
        return max(seat.end.code if seat.end else 0 for seat in self._seats)

    def _turn(self, *, until: float | None = None) -> None:
        """Do what is due; then wait for the next event, the next due time, or `until`."""
        self._obey_signals()
        for seat in self._seats:
            seat.advance(stopping=self._stops_asked > 0)
        if not self._stops_asked and is_hopeless(
            seat.end if seat.phase is SeatPhase.EMPTY else None for seat in self._seats
        ):
            self._logs.say("every worker rejects its configuration: giving up", logging.CRITICAL)
            self._stops_asked += 1
            return
        self._roll_on()
        self._releases.advance()
        if all(seat.phase is SeatPhase.DONE for seat in self._seats) and (until is None or self._releases.is_empty):
            return
        dues = [due for due in (until, self._releases.due, *(seat.due for seat in self._seats)) if due is not None]
        if self._line is not None:
            if time.monotonic() >= self._line_due:
                self._logs.show(self._line())
                self._line_due = time.monotonic() + _LINE_EVERY
            dues.append(self._line_due)
        for key, _ in self._selector.select(max(0.0, min(dues) - time.monotonic()) if dues else None):
            key.data()

    def _obey_signals(self) -> None:
        if self._has_child_ended:
            self._has_child_ended = False  # before the check: a later death causes another check
            ended = reap()
            self._releases.note_ends(ended)
            for seat in self._seats:
                seat.note_ends(ended)
        is_roll_asked, self._is_roll_asked = self._is_roll_asked, False
        if is_roll_asked and not self._stops_asked:
            self._roll = [seat for seat in self._seats if seat.phase is SeatPhase.RUNNING and not seat.is_replacing]
            self._logs.say(f"replacing {len(self._roll)} workers, one by one")
        if self._stops_asked > self._stops_obeyed:
            is_second, self._stops_obeyed = self._stops_obeyed > 0, self._stops_asked
            self._roll = []
            self._logs.say("stopping: asking every worker to end")
            for seat in self._seats:
                seat.ask_to_end(kill_after=self._kill_after, again=is_second)

    def _roll_on(self) -> None:
        """Ask the next worker to end, once the previous one has been replaced."""
        while self._roll and not any(seat.is_replacing for seat in self._seats):
            self._roll.pop(0).ask_to_end(kill_after=self._kill_after, replacing=True)

    def _start_child(self, occupant: ChildSeat) -> SupervisedChild:
        return SupervisedChild(lambda: self._run_child(occupant), lifeline=self._lifeline, close=self._private())

    def _private(self) -> list[int]:
        """The descriptors, in addition to the lifeline, that a forked process must close."""
        return [self._wake_read, self._wake_write, *self._logs.fds]

    @contextlib.contextmanager
    def _signals(self) -> Generator[None]:
        """Record signals while the block runs; each of them also ends the selector's wait."""
        for fd in (self._wake_read, self._wake_write):
            os.set_blocking(fd, False)
        self._selector.register(self._wake_read, selectors.EVENT_READ, lambda: os.read(self._wake_read, 4096))
        earlier_fd = signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        earlier = {number: signal.signal(number, self._note) for number in WATCHED}
        try:
            yield
        finally:
            for number, handler in earlier.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(earlier_fd)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGCHLD:
            self._has_child_ended = True
        elif number == signal.SIGHUP:
            self._is_roll_asked = True
        else:
            self._stops_asked += 1


def _why_not_fork() -> str:
    """Return which threads run, and how to end those of Holdfast itself."""
    names = sorted(thread.name for thread in threading.enumerate() if thread is not threading.main_thread())
    ours = (
        "Threads named holdfast-… serve `.sync` calls and an open store: end them with app.sync.close() first. "
        if any(name.startswith("holdfast-") for name in names)
        else ""
    )
    return (
        f"cannot fork workers from a program that runs threads ({', '.join(names)}). {ours}"
        "Otherwise start the supervisor from the main thread before any threads, or use processes=1"
    )
