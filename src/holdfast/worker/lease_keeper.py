"""The thread that extends the leases of a worker's jobs and finds stuck handlers.

It shares only `HeldLeases` with the event loop, so handlers that block the loop do not cost the worker its jobs. Each
turn it

- extends the held leases, half-way through each, and reports lost leases and requested cancellations to the loop;
- sends the worker's heartbeat;
- checks for a handler that is stuck past its time limit and a grace (`runtime.keeper_thread`): a thread cannot be
  stopped, and a blocked event loop cannot stop anything.

The reaction to a stuck handler depends on what the process is:

```text
   runs only the worker   the process exits: its supervisor starts a new one, and all jobs that it held are lost
   runs more              e.g. a web application: it continues, this thread ends and the worker breaks. The loop
                          releases the other jobs if it can; leases that it cannot release, at least that of the
                          stuck job, are no longer extended and expire
```

Either way the next attempts of the lost jobs run isolated (see `model.budget`): there the stuck job reaches its time
limit in a process that can be killed.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import timedelta

from holdfast.errors import HoldfastError, StoreError
from holdfast.model.job import Lease, LeasedJob
from holdfast.model.lease_rules import HEARTBEAT_AT_MOST, HEARTBEAT_PARTS
from holdfast.runtime.exit_code import ExitCode
from holdfast.runtime.keeper_thread import KeeperThread, StuckHandlers
from holdfast.store.jobs import Extender
from holdfast.store.values import WorkerHeartbeat
from holdfast.worker.held_leases import HeldLeases

_logger = logging.getLogger("holdfast.worker")
_CANCEL_LOOK = 0.5
_LATE_TICKS = 4  # a wait may take this many ticks on a busy machine


class HandlerStuck(HoldfastError):  # noqa: N818 - reads as the sentence it states
    """Handlers are past their time limits and a grace, in a process that the worker must not end."""

    def __init__(self, jobs: Sequence[LeasedJob], seconds: float) -> None:
        first, more = jobs[0], f", and {len(jobs) - 1} more" if len(jobs) > 1 else ""
        super().__init__(
            f"job {first.id} ({first.task}) is stuck {seconds:.1f} s past its time limit{more}: its handler cannot be "
            "stopped and continues in this process, and its lease is left to expire. Make the handler end in time, or "
            'run its task with executor="process", where it can be killed'
        )
        self.jobs = jobs


class LeaseKeeper(KeeperThread):
    """Extends leases from a thread until it is closed."""

    def __init__(  # noqa: PLR0913 - what the thread needs, by name
        self,
        holdings: HeldLeases,
        *,
        open_extender: Callable[[], Extender],
        heartbeat: Callable[[], WorkerHeartbeat],
        lease: timedelta,
        limits: Mapping[Hashable, tuple[float, LeasedJob]],
        stuck_grace: float,
        owns_process: bool,
        lost: Callable[[list[Lease]], None],
        cancel_asked: Callable[[list[Lease]], None],
        died: Callable[[BaseException], None],
        turned: Callable[[], None],
        extended: Callable[[list[tuple[str, float]]], None] | None = None,
    ) -> None:
        """`extended` receives the queue of each extended lease, and the seconds that were left of the lease."""
        super().__init__(open_extender, name="holdfast-keeper", died=died)
        self._holdings = holdings
        self._heartbeat = heartbeat
        self._lease = lease
        self._owns_process = owns_process
        self._lost = lost
        self._cancel_asked = cancel_asked
        self._turned = turned
        self._extended = extended
        self._is_cut_off = False
        seconds = lease.total_seconds()
        self._tick = min(seconds / 20, _CANCEL_LOOK)
        self._stuck = StuckHandlers(limits, grace=stuck_grace, tick=self._tick * _LATE_TICKS)
        self._heartbeat_every = min(seconds / HEARTBEAT_PARTS, HEARTBEAT_AT_MOST.total_seconds())
        self._heartbeat_at = 0.0

    def began(self) -> None:
        """Report that the first turn has ended: the worker is registered, or the store could not be reached."""
        self._turned()

    def work(self, extender: Extender) -> float:
        """Extend leases, read requests to cancel, and send the heartbeat if it is due."""
        self._extend(extender)
        self._look_for_cancels(extender)
        self._send_heartbeat(extender)
        if self._is_cut_off:
            self._is_cut_off = False
            _logger.warning("leases are being extended again")
        return self._tick

    def failed(self, error: StoreError) -> float:
        """Log the first of several failures in a row."""
        if not self._is_cut_off:
            self._is_cut_off = True
            _logger.warning("extending leases failed, retrying: %s", error)
        return self._tick

    def _extend(self, extender: Extender) -> None:
        sent_at = time.monotonic()
        due = self._holdings.due(sent_at)
        if not due:
            return
        extension = extender.extend(due, self._lease)
        not_extended = {(lease.seq, lease.fence) for lease in (*extension.lost, *extension.skipped)}
        extended = [lease for lease in due if (lease.seq, lease.fence) not in not_extended]
        if self._extended is not None and extended:
            self._extended(self._holdings.margins(extended, sent_at, self._lease.total_seconds()))
        self._holdings.extended(extended, sent_at)
        if extension.lost:
            self._holdings.lost(extension.lost)
            self._lost(extension.lost)

    def _look_for_cancels(self, extender: Extender) -> None:
        if len(self._holdings):
            asked = extender.cancel_asked(self._heartbeat().worker_id)
            if asked:
                self._cancel_asked(asked)

    def _send_heartbeat(self, extender: Extender) -> None:
        now = time.monotonic()
        if now >= self._heartbeat_at:
            extender.heartbeat(self._heartbeat())
            self._heartbeat_at = now + self._heartbeat_every

    def check(self, waited: float | None) -> None:
        """End the process, or raise `HandlerStuck`, if a handler is stuck."""
        now = self.now()
        if waited is not None:
            self._stuck.waited(waited, now)
        stuck = self._stuck.find(now)
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
