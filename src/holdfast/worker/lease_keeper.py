"""The thread that keeps the worker's leases alive and judges what the event loop cannot.

It has its own connection and shares only `HeldLeases` with the event loop, so handlers that block the loop do not cost
the worker its jobs. It does three things, again and again:

- extend what is held, half-way through each lease (and tell the loop what was lost and what is to be cancelled);
- tell the store that this worker lives;
- judge whether a handler is stuck past its time limit and a grace: a thread cannot be stopped, and a blocked event loop
  cannot stop anything. Where the whole process stood still (SIGSTOP, a paused machine) nobody was stuck: the grace then
  counts from when it went on, so that the loop has the time to end what is past its limit.

What is done about a stuck handler depends on whose process it is:

```text
   a worker's own   ended: whoever supervises it starts a new one, and all jobs that it held are lost beside others
   another's        left alone, a web application say: this thread ends and the worker breaks. The loop gives back the
                    rest, if it can; what it cannot, the stuck job at least, is extended no more and so is lost
```

Either way what was lost next runs alone (see `model.budget`): the stuck job there meets its limit, in a process that
can be killed.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from holdfast.errors import HoldfastError, StoreError
from holdfast.model.job import Lease, LeasedJob
from holdfast.runtime.exit_code import ExitCode
from holdfast.store.jobs import Extender
from holdfast.store.values import WorkerBeat
from holdfast.worker.held_leases import HeldLeases

_logger = logging.getLogger("holdfast.worker")
_CANCEL_LOOK = 0.5
_LATE_TICKS = 4  # a wait may take so many ticks on a busy machine


class HandlerStuck(HoldfastError):  # noqa: N818 - reads as the sentence it states
    """Handlers are past their time limits and a grace, in a process that is not the worker's to end."""

    def __init__(self, jobs: Sequence[LeasedJob], seconds: float) -> None:
        first, more = jobs[0], f", and {len(jobs) - 1} more" if len(jobs) > 1 else ""
        super().__init__(
            f"job {first.id} ({first.task}) is stuck {seconds:.1f} s past its time limit{more}: its handler cannot be "
            "stopped and goes on in this process, and its lease is left to expire. Let the handler give up in time, or "
            'run its task with executor="process", where it can be killed'
        )
        self.jobs = jobs


class LeaseKeeper:
    """Extends leases from a thread until it is closed."""

    def __init__(  # noqa: PLR0913 - what the thread needs, by name
        self,
        holdings: HeldLeases,
        *,
        open_extender: Callable[[], Extender],
        beat: Callable[[], WorkerBeat],
        lease: timedelta,
        limits: Mapping[tuple[int, int], tuple[float, LeasedJob]],
        stuck_grace: float,
        owns_process: bool,
        lost: Callable[[list[Lease]], None],
        cancel_asked: Callable[[list[Lease]], None],
        died: Callable[[BaseException], None],
        turned: Callable[[], None],
    ) -> None:
        self._holdings = holdings
        self._open_extender = open_extender
        self._extender: Extender | None = None
        self._beat = beat
        self._lease = lease
        self._limits = limits
        self._stuck_grace = stuck_grace
        self._owns_process = owns_process
        self._lost = lost
        self._cancel_asked = cancel_asked
        self._died = died
        self._turned = turned
        self._stop = threading.Event()
        self._is_cut_off = False
        seconds = lease.total_seconds()
        self._tick = min(seconds / 20, _CANCEL_LOOK)
        self._beat_every = min(seconds / 2, 10.0)
        self._beat_at = 0.0
        self._still_after = max(self._tick * _LATE_TICKS, stuck_grace / 2)  # less leaves the loop half of the grace
        self._went_on_at = float("-inf")
        self._thread = threading.Thread(target=self._run, name="holdfast-keeper", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread and wait for it; what it is doing is bounded by the store's own time-outs."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._turn()
            self._turned()
            while not self._waited():
                self._turn()
        except BaseException as error:  # noqa: BLE001 - a dead keeper is told, never silent
            self._died(error)
        finally:
            self._close_extender()

    def _waited(self) -> bool:
        """Wait for the next turn; True if there is none. Note it if the process stood still meanwhile."""
        began = time.monotonic()
        is_over = self._stop.wait(self._tick)
        now = time.monotonic()
        if now - began > self._still_after:
            self._went_on_at = now
        return is_over

    def _turn(self) -> None:
        self._judge(time.monotonic())
        try:
            extender = self._extender or self._open_extender()
            self._extender = extender
            self._extend(extender)
            self._look_for_cancels(extender)
            self._tell(extender)
        except StoreError as error:
            self._close_extender()
            if not self._is_cut_off:
                self._is_cut_off = True
                _logger.warning("leases cannot be extended for now, trying again: %s", error)
        else:
            if self._is_cut_off:
                self._is_cut_off = False
                _logger.warning("leases are being extended again")

    def _extend(self, extender: Extender) -> None:
        sent_at = time.monotonic()
        due = self._holdings.due(sent_at)
        if not due:
            return
        extension = extender.extend(due, self._lease)
        not_extended = {(lease.seq, lease.fence) for lease in (*extension.lost, *extension.skipped)}
        self._holdings.extended((lease for lease in due if (lease.seq, lease.fence) not in not_extended), sent_at)
        if extension.lost:
            self._holdings.lost(extension.lost)
            self._lost(extension.lost)

    def _look_for_cancels(self, extender: Extender) -> None:
        if len(self._holdings):
            asked = extender.cancel_asked(self._beat().worker_id)
            if asked:
                self._cancel_asked(asked)

    def _tell(self, extender: Extender) -> None:
        now = time.monotonic()
        if now >= self._beat_at:
            extender.beat(self._beat())
            self._beat_at = now + self._beat_every

    def _judge(self, now: float) -> None:
        stuck = [
            (now - limit, job)
            for limit, job in list(self._limits.values())
            if now > max(limit, self._went_on_at) + self._stuck_grace
        ]
        if not stuck:
            return
        seconds, job = stuck[0]
        if not self._owns_process:
            raise HandlerStuck([job for _, job in stuck], seconds)
        _logger.critical(
            "job %s (%s) is stuck %.1f s past its time limit and cannot be stopped: ending this process (%d)",
            job.id, job.task, seconds, os.getpid(),
        )  # fmt: skip
        logging.shutdown()
        os._exit(ExitCode.STUCK)

    def _close_extender(self) -> None:
        extender, self._extender = self._extender, None
        if extender is not None:
            try:
                extender.close()
            except HoldfastError as error:
                _logger.warning("closing the connection for extensions failed: %s", error)
