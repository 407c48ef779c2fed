"""One seat of the supervisor: filled, emptied by a death, its process group killed, and filled again.

```text
          fill                child ends               its group is gone: leases are released
  EMPTY ────────▶ RUNNING ───────────────▶ BURYING ──┬──────────────▶ DONE
    ▲                                                │
    └───────────── after the backoff ────────────────┘
```
"""

from __future__ import annotations

import logging
import time
from enum import Enum
from typing import TYPE_CHECKING, Final

from holdfast.model.ids import new_id
from holdfast.runtime.exit_code import ExitCode
from holdfast.worker.supervision.children import ChildSeat, SupervisedChild, describe
from holdfast.worker.supervision.restarts import ChildExit, Delays, decide

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.worker.supervision.joined_logs import JoinedLogs, Source
    from holdfast.worker.supervision.release_helper import ReleaseHelper

_BURIAL: Final = 2.0  # seconds for a killed group to be gone; only a process stuck in the kernel takes longer
_LOOK: Final = 0.05  # seconds between checks of a killed group: not every system reports its last exit


class SeatPhase(Enum):
    """The phase of a seat."""

    EMPTY = "waits to be filled"
    RUNNING = "has a living child"
    BURYING = "the child is dead, its group is being killed"
    DONE = "will not be filled again"


class Seat:
    """The phase of a seat, its child, and when the next step is due.

    The caller calls `note_ends` when children of the process have ended, and `advance` no later than `due`.
    """

    def __init__(
        self,
        index: int,
        *,
        prefix: str,
        supervisor_id: str,
        start: Callable[[ChildSeat], SupervisedChild],
        logs: JoinedLogs,
        releases: ReleaseHelper,
        delays: Delays,
    ) -> None:
        self._index = index
        self._prefix = prefix
        self._supervisor_id = supervisor_id
        self._start = start
        self._logs = logs
        self._releases = releases
        self._delays = delays
        self._failures = 0
        self._filled: tuple[ChildSeat, SupervisedChild, Source] | None = None
        self._reason = ""
        self.phase = SeatPhase.EMPTY
        self.due: float | None = 0.0
        self.end: ChildExit | None = None
        self.is_replacing = False
        self._is_asked = False

    def advance(self, *, stopping: bool) -> None:
        """Do what is due."""
        now = time.monotonic()
        if self.phase is SeatPhase.EMPTY and stopping:
            self.phase, self.due = SeatPhase.DONE, None
        elif self.due is None or now < self.due:
            return
        elif self.phase is SeatPhase.EMPTY:
            self._fill()
        elif self.phase is SeatPhase.RUNNING:
            occupant, child, _ = self._occupied()
            self._logs.say(f"{occupant.worker_id} did not end in time: killed", logging.WARNING)
            child.kill_group()
            self.due = None
        elif self.phase is SeatPhase.BURYING:
            self._bury(now, stopping=stopping)

    def ask_to_end(self, *, kill_after: float, replacing: bool = False, again: bool = False) -> None:
        """Ask the child to end, and set the time at which it is killed, if none is set.

        A child that was asked before is not asked again, which would cut its drain short, unless `again`.
        """
        self.is_replacing = replacing and self.phase is SeatPhase.RUNNING
        if self.phase is SeatPhase.RUNNING:
            if again or not self._is_asked:
                self._occupied()[1].terminate()
            self._is_asked = True
            self.due = self.due if self.due is not None else time.monotonic() + kill_after

    def note_ends(self, ended: Mapping[int, int]) -> None:
        """Check whether the child has ended; if so, kill what is left of its group."""
        if self.phase is SeatPhase.BURYING:
            self.due = 0.0  # it may have been the last process of the group
        if self.phase is not SeatPhase.RUNNING:
            return
        _, child, _ = self._occupied()
        code = ended.get(child.pid)
        if code is None:
            return
        child.kill_group()
        now = time.monotonic()
        self.end = ChildExit(code if code >= 0 else 128 - code, now - child.started)
        self._reason = describe(code)
        self._bury_until = now + _BURIAL
        self.phase, self.due = SeatPhase.BURYING, now

    def _fill(self) -> None:
        worker_id = f"{self._prefix}w{self._index}-{new_id()[-8:]}"  # the random end of the id
        occupant = ChildSeat(self._index, worker_id, self._supervisor_id)
        self.is_replacing = self._is_asked = False
        try:
            child = self._start(occupant)
        except OSError as error:  # out of memory or processes
            self.end = ChildExit(ExitCode.BROKEN, 0.0)
            self._succeed(f"{occupant.worker_id} cannot be started ({error})", stopping=False)
            return
        self._filled = occupant, child, self._logs.add(child.output, occupant.label)
        self.phase, self.due = SeatPhase.RUNNING, None

    def _bury(self, now: float, *, stopping: bool) -> None:
        occupant, child, source = self._occupied()
        if not child.is_group_gone():
            if now < self._bury_until:
                self.due = now + _LOOK
                return
            text = f"some processes of {occupant.worker_id} survive SIGKILL; its leases are released anyway"
            self._logs.say(text, logging.WARNING)
        self._logs.end(source)
        self._filled = None
        self._releases.add(occupant.worker_id, self._reason)
        self._succeed(f"{occupant.worker_id} {self._reason}", stopping=stopping)

    def _succeed(self, what: str, *, stopping: bool) -> None:
        """Decide whether and when the seat is filled again."""
        end = self.end or ChildExit(ExitCode.BROKEN, 0.0)
        restart = decide(
            end, failures=self._failures, stopping=stopping, replacing=self.is_replacing, delays=self._delays
        )
        level = logging.WARNING if end.code else logging.INFO
        if restart is None:
            self._logs.say(what, level)
            self.phase, self.due = SeatPhase.DONE, None
            return
        self._logs.say(f"{what}; restarting in {restart.delay:g} s", level)
        self._failures = restart.failures
        self.phase, self.due = SeatPhase.EMPTY, time.monotonic() + restart.delay

    def _occupied(self) -> tuple[ChildSeat, SupervisedChild, Source]:
        if self._filled is None:
            message = f"seat {self._index} has no child while {self.phase.name}"
            raise RuntimeError(message)
        return self._filled
