"""The endpoint of a worker: in a thread of its process or, with several processes, in a process beside them.

A supervisor has no threads, since it forks. So the endpoint of several workers is a separate process: forked first, it
answers from what the workers share with it, also while all of them are down because the store is. It ends with the
supervisor. If it dies, probes fail, and the supervisor is restarted from outside.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client import REGISTRY, CollectorRegistry, generate_latest

from holdfast.app.app import App
from holdfast.errors import ConfigError
from holdfast.hooks.observers import Hooks
from holdfast.hooks.values import StoreFailure, WorkerStart
from holdfast.runtime.parent_death import die_with
from holdfast.telemetry.families import VERSION, ProcessFamilies, families_of
from holdfast.telemetry.health import workers_live, workers_ready
from holdfast.telemetry.http_endpoint import Answers, MetricsServer, listen, url_of
from holdfast.telemetry.job_metrics import JobMetrics
from holdfast.telemetry.seat_board import SeatBoard
from holdfast.telemetry.shared_metrics import DIRECTORY, SharedCollector, shared_families

_logger = logging.getLogger("holdfast.worker")


def serving(app: App, address: str | int, *, processes: int = 1) -> contextlib.AbstractContextManager[str]:
    """Serve the endpoint while the block runs; its value is the URL. Raises `ConfigError` if it cannot listen."""
    listener = listen(address)
    _logger.info("metrics at %s/metrics, probes at /livez and /readyz", url_of(listener))
    return _of_one(app, listener) if processes == 1 else _of_many(app, listener, processes)


class ProcessMetrics:
    """Observers that report the process itself and its store."""

    def __init__(self, app: App, families: ProcessFamilies) -> None:
        self._app = app
        self._families = families

    def observe(self, hooks: Hooks) -> None:
        """Add the observers."""
        hooks.worker_start(self._started)
        hooks.worker_start(self._set_schema)
        hooks.store_fail(self._store_failed)
        hooks.store_recover(self._store_recovered)

    def _started(self, _: WorkerStart) -> None:
        self._families.build_info.labels(VERSION).set(1)
        self._families.store_up.set(1)

    async def _set_schema(self, _: WorkerStart) -> None:
        self._families.schema_version.set(await self._app.backend.schema.check())

    def _store_failed(self, _: StoreFailure) -> None:
        self._families.store_up.set(0)

    def _store_recovered(self, _: StoreFailure) -> None:
        self._families.store_up.set(1)


# --- one process ------------------------------------------------------------------------------------------------------


@contextmanager
def _of_one(app: App, listener: socket.socket) -> Generator[str]:
    own = CollectorRegistry(auto_describe=False)
    board = SeatBoard(1)
    board.observe(app.hooks)
    JobMetrics(families_of()).observe(app.hooks)
    ProcessMetrics(app, ProcessFamilies(own)).observe(app.hooks)
    over = threading.Event()
    server = MetricsServer(listener, _answers(board, own, REGISTRY), is_over=over.is_set)
    thread = threading.Thread(target=server.serve, name="holdfast-metrics", daemon=True)
    thread.start()
    try:
        yield url_of(listener)
    finally:
        over.set()
        thread.join()
        server.server_close()


def _answers(board: SeatBoard, *registries: CollectorRegistry) -> Answers:
    return Answers(
        metrics=lambda: b"".join(generate_latest(registry) for registry in registries),
        live=lambda: workers_live(board.states()),
        ready=lambda: workers_ready(board.states(), time.monotonic()),
    )


# --- several processes ------------------------------------------------------------------------------------------------


@contextmanager
def _of_many(app: App, listener: socket.socket, processes: int) -> Generator[str]:
    if threading.active_count() > 1:
        names = ", ".join(sorted(thread.name for thread in threading.enumerate()))
        message = f"cannot fork the metrics endpoint from a program that runs threads ({names}): start it before them"
        raise ConfigError(message)
    url, board = url_of(listener), SeatBoard(processes)
    with tempfile.TemporaryDirectory(prefix="holdfast-metrics-") as made:
        directory = Path(os.environ.get(DIRECTORY, made))
        with shared_families(directory) as families:
            app.on("worker.start", families.name.take_seat)
            board.observe(app.hooks)
            JobMetrics(families.jobs).observe(app.hooks)
            ProcessMetrics(app, families.process).observe(app.hooks)
            with _beside(listener, board, directory):
                yield url


@contextmanager
def _beside(listener: socket.socket, board: SeatBoard, directory: Path) -> Generator[None]:
    """Run the server in a separate process."""
    child = _fork_server(listener, board, directory)
    listener.close()  # in the workers, too: after the death of the server no connection must wait
    try:
        yield
    finally:
        board.stop_reader()
        with contextlib.suppress(ChildProcessError):  # the supervisor reaps every child
            os.waitpid(child, 0)


def _fork_server(listener: socket.socket, board: SeatBoard, directory: Path) -> int:
    parent = os.getpid()
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        os.setpgid(0, 0)  # Ctrl-C is for the supervisor
        die_with(parent)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        registry = CollectorRegistry(auto_describe=False)
        registry.register(SharedCollector(directory, board.states))
        server = MetricsServer(
            listener, _answers(board, registry), is_over=lambda: board.is_stopped or os.getppid() != parent
        )
        server.serve()
        code = 0
    finally:
        os._exit(code)
