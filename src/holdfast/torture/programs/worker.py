"""A worker of a run: `python -m holdfast.torture.programs.worker '{…}'`."""

from __future__ import annotations

import os
import sys
import threading
import time

from holdfast.app.app import App
from holdfast.runtime import failpoint
from holdfast.runtime.exit_code import ExitCode
from holdfast.torture.programs.claim_choices import ClaimChoices
from holdfast.torture.programs.claim_loop import ClaimLoop
from holdfast.torture.programs.opening import opened
from holdfast.torture.programs.settings import WorkerProgramSettings
from holdfast.torture.work import catalogue
from holdfast.torture.work.app import app, recording
from holdfast.torture.work.unknown_tasks import UNKNOWN

_POLL = 0.2  # seconds
_STEP_AFTER = 1.5  # leases, until a wrong clock is stepped to the other side


def step_clock(seconds: float) -> None:
    """Make this process read a wrong wall clock; monotonic clocks are unaffected, as by a real step."""
    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() + seconds
    time.time_ns = lambda: now_ns() + round(seconds * 1_000_000_000)


def with_known_tasks(*, knows_rare_task: bool) -> App:
    """Return an app over the store of the run that knows all tasks, or all but one."""
    known = App(app.backend.url, retention=app.retention)
    known.backend = app.backend
    for task in app.tasks:
        if knows_rare_task or task.name != UNKNOWN:
            known.tasks.add(task)
    return known


def run_claim_loop(settings: WorkerProgramSettings) -> int:
    """Claim and finish jobs without a worker, until SIGTERM."""
    recording.claims_directly = True
    ClaimLoop(settings, ClaimChoices(settings)).run()
    return ExitCode.FINE


def main() -> int:
    """Run until SIGTERM."""
    with opened(WorkerProgramSettings) as settings:
        if settings.skew:
            step_clock(settings.skew)
        if settings.skew and settings.processes == 1:  # a supervisor forks, and must have no thread
            back = threading.Timer(_STEP_AFTER * settings.lease, step_clock, [-1.5 * settings.skew])
            back.daemon = True
            back.start()
        if settings.claims_directly:
            return run_claim_loop(settings)
        os.environ.pop(failpoint.VARIABLE, None)  # the armed fault is for this process, not for its job children
        return with_known_tasks(knows_rare_task=settings.knows_rare_task).run_worker(
            processes=settings.processes,
            worker_id=settings.name,
            queues=settings.queues,
            lease=settings.lease,
            poll_interval=_POLL,
            concurrency=settings.concurrency,
            prefetch_max=settings.prefetch_max,
            batch_max=settings.batch_max,
            drain_timeout=2 * settings.lease,
        )


if __name__ == "__main__":
    catalogue.WORKS  # noqa: B018 - registers all tasks
    sys.exit(main())
