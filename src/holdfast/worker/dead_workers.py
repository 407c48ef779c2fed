"""What a worker reports about others that died: whose jobs are ready again, and for whose leases it waits."""

from __future__ import annotations

import logging
import os
import socket
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Final

from holdfast.hooks.observers import Hooks
from holdfast.hooks.values import JobRescue
from holdfast.model.counted import counted
from holdfast.model.lease_rules import HEARTBEAT_PARTS, OVERDUE_AT_MOST, is_overdue
from holdfast.store.insight import Insight
from holdfast.store.values import ClaimRequest, LeaseView, Rescued, WorkerHeartbeat, WorkerView

_logger = logging.getLogger("holdfast.worker")
_SOON: Final = 1.0  # seconds without a claimed job before the first look
_MOST: Final = 1000  # leases that one look reads
_NEVER: Final = float("inf")


class DeadWorkers:
    """Reports rescues, once per dead worker, and logs once per idle period the leases for which this worker waits."""

    def __init__(self, insight: Callable[[], Insight], hooks: Callable[[], Hooks]) -> None:
        self._insight = insight
        self._hooks = hooks
        self._rescued: dict[str, list[Rescued]] = defaultdict(list)
        self._idle_since: float | None = None
        self._look_after = _SOON

    # --- rescues ------------------------------------------------------------------------------------------------------

    def rescued(self, jobs: Iterable[Rescued]) -> None:
        """Note the jobs of one rescue; the next may add jobs of the same workers."""
        for job in jobs:
            self._rescued[job.worker_id].append(job)

    async def report_rescues(self) -> None:
        """Report the noted jobs, with the age of each worker's last heartbeat."""
        rescued, self._rescued = self._rescued, defaultdict(list)
        if not rescued:
            return
        views: dict[str, WorkerView] = {}
        try:
            views = {view.heartbeat.worker_id: view for view in await self._insight().workers()}
        finally:
            for worker_id, jobs in rescued.items():
                self._hooks().job_rescue.emit(JobRescue(worker_id, _why(views.get(worker_id)), tuple(jobs)))

    # --- an idle worker -----------------------------------------------------------------------------------------------

    def is_look_due(self, now: float, claimed: int) -> bool:
        """Note how many jobs a claim returned; return whether to look now who holds the others.

        At most two looks per idle period, the second when the heartbeat of a worker that had died before is overdue: if
        the first found no lease to wait for, and there are workers that may be alive.
        """
        if claimed:
            self._idle_since = None
            return False
        if self._idle_since is None:
            self._idle_since, self._look_after = now, _SOON
        return now - self._idle_since >= self._look_after

    async def look(self, request: ClaimRequest) -> None:
        """Log the dead workers that hold jobs which this worker could run."""
        was_first = self._look_after == _SOON
        self._look_after = _NEVER
        others = [view for view in await self._insight().workers() if view.heartbeat.worker_id != request.worker_id]
        dead = {view.heartbeat.worker_id: view for view in others if _is_dead(view)}
        if len(dead) < len(others) and was_first:
            self._look_after = OVERDUE_AT_MOST.total_seconds()
        if not dead:
            return
        held: dict[str, list[LeaseView]] = defaultdict(list)
        for lease in await self._insight().leases(_MOST):
            if lease.worker_id in dead and lease.task in request.tasks and request.serves(lease.queue):
                held[lease.worker_id].append(lease)
        for worker_id, leases in held.items():
            self._look_after = _NEVER
            _log_wait(dead[worker_id], leases)


def _log_wait(view: WorkerView, leases: Sequence[LeaseView]) -> None:
    left = max(timedelta(0), *(lease.expires_in for lease in leases))
    _logger.warning(
        "%s %s held by worker %s, no heartbeat for %.0f s; waiting up to %.0f s for its lease to expire",
        counted(len(leases), "job"), "is" if len(leases) == 1 else "are",
        view.heartbeat.worker_id, view.silent.total_seconds(), left.total_seconds(),
    )  # fmt: skip


def _why(view: WorkerView | None) -> str:
    if view is None or view.silent < view.heartbeat.lease / HEARTBEAT_PARTS:
        return "its lease expired"
    return f"no heartbeat for {view.silent.total_seconds():.0f} s"


def _is_dead(view: WorkerView) -> bool:
    """Return whether the heartbeat of a worker is overdue, or it was in a process of this host that is gone."""
    return is_overdue(view.silent, view.heartbeat.lease) or _is_process_gone(view.heartbeat)


def _is_process_gone(heartbeat: WorkerHeartbeat) -> bool:
    if heartbeat.host != socket.gethostname() or heartbeat.pid <= 0:
        return False
    try:
        os.kill(heartbeat.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:  # it runs, as another user
        return False
    return False
