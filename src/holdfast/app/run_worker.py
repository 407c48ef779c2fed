"""Run a worker as a program: signals, several processes, exit codes."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, NoReturn

from holdfast.app.sync import THREAD
from holdfast.errors import ConfigError, SchemaMismatch, StoreUnavailable
from holdfast.runtime.exit_code import ExitCode
from holdfast.streams.dead_node import remove_dead_node
from holdfast.streams.node import Node, NodeBroken
from holdfast.worker.settings import WorkerConfig
from holdfast.worker.supervision.supervisor import ChildSeat, Supervisor
from holdfast.worker.worker import Worker, WorkerBroken

if TYPE_CHECKING:
    from holdfast.app.app import App

_logger = logging.getLogger("holdfast.worker")
_RELEASE_BATCH = 500
_OF_STORES: Final = ("holdfast-sqlite-", "holdfast-postgres-")  # threads that run no code but ours
_LINGER: Final = 2.0  # seconds for threads that were told to end


class WorkerProcess:
    """What runs in one process: a worker for the app's tasks, a node for its consumers, or both."""

    def __init__(self, worker: Worker | None, node: Node | None) -> None:
        self.worker = worker
        self.node = node
        self._is_asked = False
        self._codes: list[int] = []

    @property
    def name(self) -> str:
        """What the process is called in logs."""
        if self.worker is not None:
            return f"worker {self.worker.worker_id}"
        assert self.node is not None  # noqa: S101 - a crew of nobody is never made
        return f"node {self.node.node.node_id}"

    @property
    def handlers_end_within(self) -> float:
        """The seconds after which no handler of a worker that was asked to end is waited for any more.

        Aborted handlers have one grace to unwind; those in their own transaction have another.
        """
        settings = WorkerConfig() if self.worker is None else self.worker.settings
        return settings.drain_timeout + 2 * settings.abort_grace

    def stop(self) -> None:
        """Ask all to end; asked again, they give back what runs."""
        _logger.info("%s was asked to end; asked again, it gives back what runs", self.name)
        self._stop()

    def _stop(self) -> None:
        self._is_asked = True
        if self.worker is not None:
            self.worker.stop()
        if self.node is not None:
            self.node.stop()

    async def run(self) -> int:
        """Run until all have ended; when one ends, the other is asked to. Returns the exit code."""
        tasks: list[asyncio.Task[int]] = []
        if self.worker is not None:
            tasks.append(asyncio.create_task(_code_of(self.worker.run())))
        if self.node is not None:
            tasks.append(asyncio.create_task(_code_of(self.node.run())))
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not self._is_asked:  # to ask again would cut short the time that the slower one has to drain
            self._stop()
        self._codes = await asyncio.gather(*tasks)
        return max(self._codes)

    @property
    def may_leave_handlers(self) -> bool:
        """Whether handlers may run on though all have ended, so that the process must not wait for them."""
        is_node_left = self.node is not None and self.node.has_left_handlers
        return is_node_left or not {ExitCode.RELEASED, ExitCode.BROKEN}.isdisjoint(self._codes)


async def _code_of(work: Coroutine[Any, Any, int | None]) -> int:
    """Return the exit code of a worker or a node, whichever way it ends."""
    try:
        return int(await work or 0)
    except (WorkerBroken, NodeBroken) as error:
        _logger.critical("%s", error, exc_info=error)
        return ExitCode.BROKEN
    except (ConfigError, SchemaMismatch) as error:
        _logger.critical("%s", error)
        return ExitCode.CONFIGURATION
    except StoreUnavailable as error:  # only at the start: what runs waits for its store to come back
        _logger.critical("the store cannot be opened: %s", error)
        return ExitCode.UNAVAILABLE


def tell_of_consumers_left_out(app: App) -> None:
    """Warn that an until-empty run leaves consumers out: a stream never ends. With consumers alone, raise."""
    names = ", ".join(sorted(consumer.name for consumer in app.subscribed))
    if not names:
        return
    if not len(app.tasks):
        message = f"until_empty runs tasks alone, and this app has only consumers ({names}): leave it out to run those"
        raise ConfigError(message)
    _logger.warning("until_empty runs tasks alone: the consumers %s do not run here", names)


def run_one(app: App, make_crew: Callable[[], WorkerProcess]) -> int:
    """Run a crew in this process until SIGTERM or SIGINT; return its exit code."""

    async def serve() -> int:
        crew = make_crew()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, crew.stop)
        _logger.info("%s is running on %s", crew.name, app.backend.url)
        code = await crew.run()
        if crew.worker is None:
            _logger.info("%s has ended", crew.name)
        else:
            _tell_what_is_left(crew.worker)
            _logger.info("%s has ended: %s", crew.name, crew.worker.status().totals)
        if crew.may_leave_handlers:
            _end_now(code)
        await app.close()
        return code

    return asyncio.run(serve())


def _end_now(code: int) -> NoReturn:
    """End the process though handlers run on: their jobs and shares were given back, and others have them."""
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
    app: App,
    make_crew: Callable[[ChildSeat], WorkerProcess],
    processes: int,
    *,
    kill_after: float,
    name: str | None = None,
) -> int:
    """Run several crews under a supervisor; return the exit code."""

    def run_child(seat: ChildSeat) -> int:
        def make() -> WorkerProcess:
            crew = make_crew(seat)
            if crew.worker is not None:
                crew.worker.worker_id = seat.worker_id  # of this very run, and the one whose leases are released
            if crew.node is not None:
                crew.node.incarnate(seat.worker_id)
            return crew

        return run_one(app, make)

    def release(worker_id: str, reason: str) -> None:
        asyncio.run(release_worker(app, worker_id, reason))

    supervisor = Supervisor(processes, run_child, release=release, kill_after=kill_after, name=name or "")
    _close_before_forks(app)
    return supervisor.run()


def _close_before_forks(app: App) -> None:
    """Close what blocking calls have opened here, if nothing can be using it; else the supervisor says what is wrong.

    Nothing can if the caller is in the main thread, outside of any loop and transaction, all other threads are ours
    and run only our own code, and no call is under way. A store in memory would be gone with its connection.
    """
    here = threading.current_thread()
    others = [thread for thread in threading.enumerate() if thread is not here]
    if here is not threading.main_thread() or _in_loop():
        return
    if not all(thread.name == THREAD or thread.name.startswith(_OF_STORES) for thread in others):
        return
    capabilities = app.backend.capabilities
    if not capabilities.shared or (capabilities.joins_transactions and app.backend.transactions.is_inside()):
        return
    if app.portal.is_idle:
        app.sync.close()
    if not app.is_open:
        for thread in others:  # some are told to end and not waited for
            thread.join(_LINGER)


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def release_worker(app: App, worker_id: str, reason: str) -> None:
    """Take the partitions and every lease of a dead worker."""
    backend = await app.opened()
    try:
        if len(app.subscribed):
            await remove_dead_node(backend, worker_id, reason)
        while True:
            rescued = await backend.jobs.rescue_worker(worker_id, reason, _RELEASE_BATCH)
            for job in rescued:
                _logger.warning("job %s (%s) was lost by %s: now %s", job.job_id, job.task, worker_id, job.state)
            if len(rescued) < _RELEASE_BATCH:
                return
    finally:
        await backend.close()
