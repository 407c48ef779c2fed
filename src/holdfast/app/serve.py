"""Run a worker as a program: signals, several processes, exit codes."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from holdfast.errors import SchemaMismatch, StoreUnavailable
from holdfast.worker.decision import BROKEN, UNAVAILABLE, Exit
from holdfast.worker.restarts import CONFIGURATION
from holdfast.worker.supervisor import ChildSeat, Supervisor
from holdfast.worker.worker import Worker, WorkerBroken

if TYPE_CHECKING:
    from holdfast.app.app import App

_logger = logging.getLogger("holdfast.worker")
_RELEASE_BATCH = 500


def run_one(app: App, make_worker: Callable[[], Worker]) -> int:
    """Run one worker in this process until SIGTERM or SIGINT; return its exit code."""

    async def serve() -> int:
        worker = make_worker()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, _asked_to_end, worker)
        _logger.info("worker %s is running on %s", worker.worker_id, app.backend.url)
        try:
            code = int(await worker.run())
        except WorkerBroken as error:
            _logger.critical("%s", error, exc_info=error)
            code = BROKEN
        except SchemaMismatch as error:
            _logger.critical("%s", error)
            code = CONFIGURATION
        except StoreUnavailable as error:  # only at the start: a worker that runs waits for its store to come back
            _logger.critical("the store cannot be opened: %s", error)
            code = UNAVAILABLE
        _tell_what_is_left(worker)
        _logger.info("worker %s has ended: %s", worker.worker_id, worker.status().totals)
        if code == Exit.RELEASED:
            _end_now(code)
        await app.close()
        return code

    return asyncio.run(serve())


def _asked_to_end(worker: Worker) -> None:
    _logger.info("worker %s was asked to end; asked again, it gives back what runs", worker.worker_id)
    worker.stop()


def _end_now(code: int) -> NoReturn:
    """End the process though handlers run on in threads: their jobs were given back, and another worker has them."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _tell_what_is_left(worker: Worker) -> None:
    left = worker.left
    if left is None:
        return
    for number, what in (
        (left.delayed, "jobs were delayed by their callers and are not due yet"),
        (left.paused, "jobs wait in paused queues"),
        (left.unknown, "jobs are of tasks that this worker does not know"),
    ):
        if number:
            _logger.warning("nothing is left to run here, but %d %s", number, what)


def run_many(
    app: App, make_worker: Callable[[str], Worker], processes: int, *, kill_after: float, name: str | None = None
) -> int:
    """Run several workers under a supervisor; return the exit code."""

    def run_child(seat: ChildSeat) -> int:
        def make() -> Worker:
            worker = make_worker(seat.worker_id)
            worker.worker_id = seat.worker_id  # of this very run already, and the one whose leases are released
            return worker

        return run_one(app, make)

    def release(worker_id: str, reason: str) -> None:
        asyncio.run(release_worker(app, worker_id, reason))

    return Supervisor(processes, run_child, release=release, kill_after=kill_after, name=name or "").run()


async def release_worker(app: App, worker_id: str, reason: str) -> None:
    """Take every lease of a dead worker."""
    backend = await app.opened()
    try:
        while True:
            rescued = await backend.jobs.rescue_worker(worker_id, reason, _RELEASE_BATCH)
            for job in rescued:
                _logger.warning("job %s (%s) was lost by %s: now %s", job.job_id, job.task, worker_id, job.state)
            if len(rescued) < _RELEASE_BATCH:
                return
    finally:
        await backend.close()
