"""Run a worker as a program: signals, several processes, exit codes.

SIGTERM or SIGINT drains: nothing new is claimed, and running handlers may end within `drain_timeout`. A second signal
aborts the handlers and releases their jobs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NoReturn

from msgspec.structs import replace

from holdfast.app.sync import THREAD
from holdfast.app.worker_settings import WorkerSettings, make_worker
from holdfast.concurrency.store_threads import is_store_thread
from holdfast.concurrency.timeouts import end_watcher
from holdfast.errors import ConfigError, SchemaMismatch, StoreUnavailable, Unsupported
from holdfast.hooks.observers import Hooks
from holdfast.hooks.values import JobRescue, WorkerDrain, WorkerEnd, WorkerReport, WorkerStart
from holdfast.model.allocation import Timing
from holdfast.model.counted import counted
from holdfast.model.totals import Totals
from holdfast.runtime.exit_code import ExitCode
from holdfast.store.values import Rescued
from holdfast.streams.dead_node import remove_dead_node
from holdfast.streams.node import Node, NodeBroken
from holdfast.worker.settings import WorkerConfig
from holdfast.worker.supervision.supervisor import ChildSeat, Supervisor
from holdfast.worker.worker import Worker, WorkerBroken

if TYPE_CHECKING:
    from holdfast.app.app import App

_logger = logging.getLogger("holdfast.worker")
_RELEASE_BATCH = 500
_REPORT_EVERY: Final = 0.25
_THREAD_EXIT_TIMEOUT: Final = 2.0  # seconds for threads that are ending
_BEYOND_DRAIN: Final = 10.0  # seconds that a supervisor allows a worker beyond the end of its handlers


def run_worker(
    app: App,
    settings: WorkerSettings,
    *,
    processes: int = 1,
    node_id: str | None = None,
    timing: Timing | None = None,
    line: Callable[[], str] | None = None,
) -> int:
    """Run the app's tasks and consumers in this process, or in several under a supervisor; return the exit code.

    A supervisor shows `line` under the joined logs, on a terminal.
    """
    if settings.get("until_empty"):
        _warn_of_consumers(app)
    if processes == 1:
        return _run_one(app, lambda: worker_process(app, settings, node_id, timing))
    shared = settings.copy()
    name = shared.pop("worker_id", None)
    sample = worker_process(app, shared, node_id, timing)  # raises for invalid settings here, not in every child

    def make(seat: ChildSeat) -> WorkerProcess:
        child = shared.copy()
        child["worker_id"] = seat.worker_id
        process = worker_process(app, child, None if node_id is None else f"{node_id}.{seat.index}", timing)
        process.seat = seat.index - 1
        if process.worker is not None:
            process.worker.worker_id = seat.worker_id  # the id whose leases the supervisor releases
            process.worker.supervisor_id = seat.supervisor_id
        if process.node is not None:
            process.node.incarnate(seat.worker_id)
        return process

    def run_child(seat: ChildSeat) -> int:
        return _run_one(app, lambda: make(seat))

    kill_after = sample.handlers_end_within + _BEYOND_DRAIN
    return _run_many(app, run_child, processes, kill_after=kill_after, name=name, line=line)


def worker_process(
    app: App, settings: WorkerSettings, node_id: str | None, timing: Timing | None, *, owns_process: bool = True
) -> WorkerProcess:
    """Return a worker unless the app has only consumers, and a node if it has any."""
    consumes = len(app.subscribed) > 0 and not settings.get("until_empty")
    worker = None if consumes and not len(app.tasks) else make_worker(app, settings, owns_process=owns_process)
    return WorkerProcess(worker, app.node(node_id=node_id, timing=timing) if consumes else None, app.hooks)


class WorkerProcess:
    """One process: a worker for the app's tasks, a node for its consumers, or both."""

    def __init__(self, worker: Worker | None, node: Node | None, hooks: Hooks | None = None) -> None:
        self.worker = worker
        self.node = node
        self.seat = 0
        """The number of this process under its supervisor, from 0."""
        self._hooks = Hooks() if hooks is None else hooks
        self._reporting: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._codes: list[int] = []

    @property
    def name(self) -> str:
        """The name of the process in logs."""
        if self.worker is not None:
            return f"worker {self.worker.worker_id}"
        assert self.node is not None  # noqa: S101 - one of the two is always given
        return f"node {self.node.node.node_id}"

    @property
    def handlers_end_within(self) -> float:
        """The seconds after which a stopping worker no longer waits for any handler.

        Aborted handlers have one `abort_grace` to unwind; those inside a transaction have a second one.
        """
        settings = WorkerConfig() if self.worker is None else self.worker.settings
        return settings.drain_timeout + 2 * settings.abort_grace

    def stop(self) -> None:
        """Drain; a second call releases running jobs."""
        self._hooks.worker_drain.emit(WorkerDrain(self.name))
        self.drain()

    def drain(self) -> None:
        """Do the same without a report."""
        self._is_stopping = True
        if self.worker is not None:
            self.worker.stop()
        if self.node is not None:
            self.node.stop()

    def started(self, store: str) -> None:
        """Report that the store is open and the process begins, and from now on what it does, if that is observed."""
        self._hooks.worker_start.emit(WorkerStart(self.name, store, self.seat))
        if self._hooks.worker_report.observers:
            self._reporting = asyncio.create_task(self._report_regularly())

    async def _report_regularly(self) -> None:
        while True:
            self._hooks.worker_report.emit(self._report())
            await asyncio.sleep(_REPORT_EVERY)

    def _report(self) -> WorkerReport:
        report = WorkerReport(self.name, self.seat, 0, 0, Totals(), 0, 0, is_draining=self._is_stopping)
        if self.worker is not None:
            report = _with_worker(report, self.worker)
        if self.node is not None:
            node, heartbeat = self.node.status(), self.node.heartbeat
            report = replace(
                report,
                partitions=len(node.shares),
                events=node.handled,
                is_extending=report.is_extending and (heartbeat is None or heartbeat.is_alive),
                is_connected=report.is_connected and (heartbeat is None or heartbeat.is_connected),
            )
        return report

    async def ended(self) -> None:
        """Report the end and its totals, and warn of what was left."""
        if self.worker is not None:
            _warn_of_jobs_left(self.worker)
        if self._reporting is not None:
            self._reporting.cancel()
            self._hooks.worker_report.emit(self._report())
        totals = None if self.worker is None else self.worker.status().totals
        self._hooks.worker_end.emit(WorkerEnd(self.name, totals))
        await self._hooks.settle()

    def parts(self) -> list[Coroutine[Any, Any, int | None]]:
        """Return what runs: the worker, the node or both."""
        parts: list[Coroutine[Any, Any, int | None]] = [] if self.worker is None else [self.worker.run()]
        return parts if self.node is None else [*parts, self.node.run()]

    async def run(self) -> int:
        """Run until worker and node have ended; when one ends, the other drains. Returns the exit code."""
        tasks = [asyncio.create_task(_code_of(part)) for part in self.parts()]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not self._is_stopping:  # a second stop would cut the drain of the other short
            self.drain()
        self._codes = await asyncio.gather(*tasks)
        return max(self._codes)

    @property
    def may_leave_handlers(self) -> bool:
        """Whether handlers may still run although worker and node have ended: the process must not wait for them."""
        is_node_left = self.node is not None and self.node.has_left_handlers
        return is_node_left or not {ExitCode.RELEASED, ExitCode.BROKEN}.isdisjoint(self._codes)


def _with_worker(report: WorkerReport, worker: Worker) -> WorkerReport:
    status, turned_at, keeper = worker.status(), worker.turned_at, worker.keeper
    return replace(
        report,
        slots=worker.settings.concurrency,
        running=len(status.running),
        totals=status.totals,
        queues=worker.queues,
        buffered=status.buffered,
        since_turn=None if turned_at is None else timedelta(seconds=time.monotonic() - turned_at),
        is_extending=keeper is None or keeper.is_alive,
        is_connected=keeper is None or keeper.is_connected,
    )


async def _code_of(work: Coroutine[Any, Any, int | None]) -> int:
    """Return the exit code of a worker or a node."""
    try:
        return int(await work or 0)
    except (WorkerBroken, NodeBroken) as error:
        _logger.critical("%s", error, exc_info=error)
        return ExitCode.BROKEN
    except (ConfigError, SchemaMismatch, Unsupported) as error:
        _logger.critical("%s", error)
        return ExitCode.CONFIGURATION
    except StoreUnavailable as error:  # only at the start: later a worker reconnects
        _logger.critical("could not open the store: %s", error)
        return ExitCode.UNAVAILABLE


def _warn_of_consumers(app: App) -> None:
    """Warn that an until-empty run does not run consumers: a stream never ends. Without tasks, raise `ConfigError`."""
    names = ", ".join(sorted(consumer.name for consumer in app.subscribed))
    if not names:
        return
    if not len(app.tasks):
        message = f"until_empty runs only tasks, and this app has only consumers ({names}): leave it out to run them"
        raise ConfigError(message)
    _logger.warning("until_empty runs only tasks: the consumers %s do not run here", names)


def _run_one(app: App, make: Callable[[], WorkerProcess]) -> int:
    """Run in this process until SIGTERM or SIGINT; return the exit code."""

    async def serve() -> int:
        process = make()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, process.stop)
        code = await _code_of(_opened(app))
        if code:
            return code
        process.started(app.backend.url)
        try:
            code = await process.run()
        finally:
            await process.ended()
        if process.may_leave_handlers:
            _end_now(code)
        await app.close()
        return code

    return asyncio.run(serve())


async def _opened(app: App) -> None:
    """Open the store and make its tables, before the process says that it runs."""
    await app.opened()


def _end_now(code: int) -> NoReturn:
    """End the process although handlers still run: their jobs and shares are released and may run elsewhere."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _warn_of_jobs_left(worker: Worker) -> None:
    left = worker.left
    if left is None:
        return
    for number, what in (
        (left.delayed, "scheduled and not due yet"),
        (left.paused, "in paused queues"),
        (left.unknown, "of tasks that this worker does not know"),
    ):
        if number:
            _logger.warning("nothing is left to run here except %s %s", counted(number, "job"), what)


def _run_many(
    app: App,
    run_child: Callable[[ChildSeat], int],
    processes: int,
    *,
    kill_after: float,
    name: str | None,
    line: Callable[[], str] | None,
) -> int:
    """Run several processes under a supervisor; return the exit code."""

    def release(worker_id: str, reason: str) -> None:
        asyncio.run(release_worker(app, worker_id, reason))

    supervisor = Supervisor(processes, run_child, release=release, kill_after=kill_after, name=name or "", line=line)
    _close_before_forks(app)
    return supervisor.run()


def _close_before_forks(app: App) -> None:
    """Close what blocking calls have opened here, unless it may be in use; then the supervisor raises.

    It is not in use if the caller is in the main thread, outside any event loop and transaction, all other threads
    are those of the portal or of a store, and no call is in flight. A store in memory would be lost by closing it.
    """
    here = threading.current_thread()
    others = [thread for thread in threading.enumerate() if thread is not here]
    if here is not threading.main_thread() or _in_loop():
        return
    if not all(thread.name == THREAD or is_store_thread(thread) for thread in others):
        return
    capabilities = app.backend.capabilities
    if not capabilities.shared or (capabilities.commits_effects and app.backend.transactions.is_inside()):
        return
    if app.portal.is_idle:
        app.sync.close()
    if not app.is_open:
        end_watcher()
        for thread in others:  # `close` does not wait for all of them
            thread.join(_THREAD_EXIT_TIMEOUT)


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def release_worker(app: App, worker_id: str, reason: str) -> None:
    """Revoke every lease and the partitions of a dead worker."""
    backend = await app.opened()
    try:
        if len(app.subscribed):
            await remove_dead_node(backend, worker_id, reason)
        if not backend.capabilities.has_jobs:
            return
        rescued: list[Rescued] = []
        try:
            while True:
                batch = await backend.jobs.rescue_worker(worker_id, reason, _RELEASE_BATCH)
                rescued += batch
                if len(batch) < _RELEASE_BATCH:
                    return
        finally:
            if rescued:
                app.hooks.job_rescue.emit(JobRescue(worker_id, reason, tuple(rescued), "died"))
                await app.hooks.settle()
    finally:
        await backend.close()
