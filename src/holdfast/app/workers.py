"""The workers of an app: as a program, inside a program, in your own loop, or over one queue until it is empty."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import TYPE_CHECKING, Unpack, cast

from holdfast.app.run_worker import run_worker
from holdfast.app.worker_settings import (
    DRAIN_SETTINGS,
    WORKER_SETTINGS,
    DrainSettings,
    WorkerSettings,
    make_worker,
)
from holdfast.app.working import working
from holdfast.errors import ConfigError
from holdfast.model.allocation import Timing
from holdfast.model.duration import to_span
from holdfast.model.totals import Totals
from holdfast.runtime.unknown_settings import refuse_unknown
from holdfast.streams.node import Node
from holdfast.worker.job_child.event_children import event_children
from holdfast.worker.worker import Worker

if TYPE_CHECKING:
    from holdfast.app.app import App


class AppWorkers:
    """What `App` offers under the same names."""

    def __init__(self, app: App) -> None:
        self._app = app

    def node(
        self, *, node_id: str | None = None, timing: Timing | None = None, stuck_grace: float | timedelta = 10.0
    ) -> Node:
        """Return a node over this app's consumers; `await node.run()` takes part until `node.stop()`.

        `run_worker` runs a node itself if the app has consumers. With a fixed `node_id` a process that restarts soon
        gets its partitions back.
        """
        if timing is not None and not isinstance(cast("object", timing), Timing):
            remedy = "pass Timing(…), or Timing.for_recovery(<seconds>)"
            raise ConfigError(f"timing must be a Timing, not {timing!r}: {remedy}")
        grace = to_span(stuck_grace, "stuck_grace").total_seconds()
        node = Node(
            self._app.backend,
            list(self._app.subscribed),
            node_id=node_id,
            timing=timing,
            stuck_grace=grace,
            processes=lambda: event_children(self._app.backend.full_url),
        )
        node.hooks = self._app.hooks
        return node

    def worker(self, **settings: Unpack[WorkerSettings]) -> Worker:
        """Return a worker over this app's tasks; `await worker.run()` runs it.

        By default it serves every queue, runs 10 jobs at once, and claims each for a lease of 30 seconds that is
        extended at half of that. `worker_class` may be a subclass of `Worker` with its own `process`. Raises
        `ConfigError` for an invalid setting. It never ends the process: if a handler is stuck, `run` raises
        `WorkerBroken`.
        """
        refuse_unknown("app.worker", settings, WORKER_SETTINGS)
        return make_worker(self._app, settings)

    def run_worker(
        self,
        *,
        processes: int = 1,
        node_id: str | None = None,
        timing: Timing | None = None,
        **settings: Unpack[WorkerSettings],
    ) -> int:
        """Run a worker as this program until SIGTERM or SIGINT and return its exit code.

        It runs the app's tasks and, as a node, its consumers; in until-empty mode only the tasks. With `processes`
        above one a supervisor starts that many, restarts those that die and releases their leases. The settings are
        those of `worker`. The worker owns the process: a handler stuck past its time limit ends it, with code 71.
        """
        refuse_unknown("app.run_worker", settings, (*WORKER_SETTINGS, "processes", "node_id", "timing"))
        return run_worker(self._app, settings, processes=processes, node_id=node_id, timing=timing)

    def working(
        self, *, node_id: str | None = None, timing: Timing | None = None, **settings: Unpack[WorkerSettings]
    ) -> AbstractAsyncContextManager[None]:
        """Run a worker, and a node if the app has consumers, inside this program: `async with app.working(): …`.

        The store is opened first: if it cannot be, the block does not begin. If the worker or the node breaks, the
        block is cancelled and their error is raised. The end of the block drains, for at most `drain_timeout`; if the
        task is cancelled meanwhile, running jobs are released at once. The settings are those of `worker`.
        """
        refuse_unknown("app.working", settings, (*WORKER_SETTINGS, "node_id", "timing"))
        return working(self._app, settings, node_id=node_id, timing=timing)

    async def drain(self, queue: str, batch: int = 50, **settings: Unpack[DrainSettings]) -> Totals:
        """Run the ready jobs of a queue, at most `batch` at a time, and return when none is left.

        Raises `WorkerBroken`, which names the job, if a handler is stuck past its time limit: its lease expires.
        """
        refuse_unknown("app.drain", settings, DRAIN_SETTINGS)
        own = {"queues": [queue], "until_empty": True, "concurrency": batch, "batch_max": batch, "prefetch_max": 0}
        worker = make_worker(self._app, {**settings, **own}, until_idle=True)
        await worker.run()
        return worker.status().totals
