"""What each worker process last reported, in memory that processes share: made before the first fork.

A process writes only its own part, four times per second. A reader may see half of a write: it judges again at the next
request.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from typing import Final, NamedTuple

from holdfast.hooks.observers import Hooks
from holdfast.hooks.values import StoreFailure, WorkerReport, WorkerStart

_SLOT: Final = struct.Struct("qd3q")
_STOP: Final = 0  # the first byte: whether the reader is to end


class SeatState(NamedTuple):
    """One process: `turned_at` is when its loop last turned, by the monotonic clock."""

    seat: int
    pid: int
    turned_at: float
    is_extending: bool
    is_connected: bool
    is_draining: bool

    @property
    def is_alive(self) -> bool:
        """Whether the process exists."""
        if not self.pid:
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True


class SeatBoard:
    """The states of all worker processes under one supervisor, or of the only one."""

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._memory = mmap.mmap(-1, 8 + processes * _SLOT.size)
        self._seat = 0
        self._failing = False

    # --- in a worker process ------------------------------------------------------------------------------------------

    def observe(self, hooks: Hooks) -> None:
        """Add the observers."""
        hooks.worker_start(self._begin)
        hooks.worker_report(self._report)
        hooks.store_fail(self._store_failed)
        hooks.store_recover(self._store_recovered)

    def _begin(self, start: WorkerStart) -> None:
        self._seat = start.seat
        self._write(time.monotonic(), is_extending=True, is_connected=True, is_draining=False)

    def _report(self, report: WorkerReport) -> None:
        since = 0.0 if report.since_turn is None else report.since_turn.total_seconds()
        self._write(
            time.monotonic() - since,
            is_extending=report.is_extending,
            is_connected=report.is_connected and not self._failing,
            is_draining=report.is_draining,
        )

    def _store_failed(self, _: StoreFailure) -> None:
        self._failing = True

    def _store_recovered(self, _: StoreFailure) -> None:
        self._failing = False

    def _write(self, turned_at: float, *, is_extending: bool, is_connected: bool, is_draining: bool) -> None:
        place = 8 + self._seat * _SLOT.size
        _SLOT.pack_into(self._memory, place, os.getpid(), turned_at, is_extending, is_connected, is_draining)

    # --- where it is read ---------------------------------------------------------------------------------------------

    def states(self) -> list[SeatState]:
        """Return what each process has reported; one that has not started has no pid."""
        slots = [_SLOT.unpack_from(self._memory, 8 + seat * _SLOT.size) for seat in range(self._processes)]
        return [
            SeatState(seat, pid, turned_at, bool(extending), bool(connected), bool(draining))
            for seat, (pid, turned_at, extending, connected, draining) in enumerate(slots)
        ]

    def stop_reader(self) -> None:
        """Ask the process that reads to end."""
        self._memory[_STOP] = 1

    @property
    def is_stopped(self) -> bool:
        """Whether the process that reads is to end."""
        return self._memory[_STOP] == 1
