"""The demo's own tables in the store, reached as a handler reaches them: in the transaction of a leased job.

Each visit is a small job of its own, enqueued and claimed here. So the demo needs no driver and no second connection,
and what it writes about the run commits together with the jobs that it enqueues in the same visit.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec

from holdfast.app.app import App
from holdfast.app.tasks import TaskHandle
from holdfast.cli.demo.plan import DemoPlan, DemoRun
from holdfast.cli.demo.target import TABLES, DemoStatements, StatementRunner
from holdfast.errors import HoldfastError
from holdfast.model.ids import new_id
from holdfast.model.job import JobState

QUEUE_PREFIX = "holdfast-demo-"
_VISITS = "holdfast-demo-visits"
_VISIT = "holdfast_demo_visit"
_WORKS = "holdfast-demo-works"
_WORK = "holdfast_demo_work"
_LEASE = 600.0  # a visit may last a third of this
_PAGE = 1000


class Records:
    """The run, its works and their effects."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.ground = DemoStatements.of(app)

        def visit() -> None:
            """Hold a lease, so that its transaction can be used."""

        def work(number: int) -> int:
            """Be numbered; consumers claim works and never call this."""
            return number

        self._visit: TaskHandle[[], None] = app.task(name=_VISIT, queue=_VISITS)(visit)
        self.work: TaskHandle[[int], int] = app.task(name=_WORK, queue=_WORKS, retry=0.1)(work)

    @asynccontextmanager
    async def visit(self, *, completes: bool = True) -> AsyncGenerator[StatementRunner]:
        """Open a transaction; what is enqueued inside commits with it."""
        await self._visit.enqueue()
        held = await self.app.claim(_VISITS, 1, tasks=[_VISIT], lease=_LEASE, worker_id="holdfast-demo")
        while not held:  # another process has claimed ours: claim one of those that follow
            await self._visit.enqueue()
            held = await self.app.claim(_VISITS, 1, tasks=[_VISIT], lease=_LEASE, worker_id="holdfast-demo")
        try:
            async with held[0].context().transaction(completes=completes) as connection:
                yield self.ground.link(connection)
        except BaseException:
            with contextlib.suppress(HoldfastError):  # the first error is the one to tell; the lease ends by itself
                await held[0].complete()
            raise

    # --- the run ----------------------------------------------------------------------------------------------------

    async def run(self) -> DemoRun | None:
        """Return the run that the store holds, if any."""
        async with self.visit() as link:
            rows = await link.rows("read_run") if await self.ground.has_tables(link) else []
        for queue, plan, produced, killed, seconds, finished in rows:
            return DemoRun(queue, msgspec.json.decode(plan, type=DemoPlan), produced, killed, seconds, bool(finished))
        return None

    async def begin(self, plan: DemoPlan) -> DemoRun:
        """Make the tables and note a new run."""
        queue = QUEUE_PREFIX + new_id()[-12:]
        async with self.visit() as link:
            await _create(link)
            await link.run("begin_run", queue, msgspec.json.encode(plan).decode())
        return DemoRun(queue, plan, 0, 0, 0.0, is_finished=False)

    async def end_session(self, killed: int, seconds: float, *, finished: bool) -> None:
        """Note what a session has come to."""
        async with self.visit() as link:
            await link.run("note_session", killed, seconds, int(finished))

    async def produce(self, run: DemoRun, first: int, last: int) -> None:
        """Enqueue the works of these numbers, and note them, all or none."""
        task = self.work.options(queue=run.queue, max_attempts=run.plan.max_attempts)
        numbers = range(first, last + 1)
        async with self.visit() as link:
            jobs = await task.enqueue_many([{"number": number} for number in numbers])
            await link.many("add_work", [(job.id, number) for job, number in zip(jobs, numbers, strict=True)])
            await link.run("note_produced", last)

    async def ended(self, run: DemoRun) -> int:
        """Return how many works have taken effect or were given up."""
        async with self.visit() as link:
            effects = await link.number("count_effects")
        return effects + sum(queue.failed for queue in await self.app.queues.list() if queue.name == run.queue)

    # --- the whole --------------------------------------------------------------------------------------------------

    async def copy_ledger(self, run: DemoRun) -> None:
        """Write down where every work of the run stands, so that it can be compared with the effects."""
        async with self.visit() as link:
            await link.run("clear_ledger")
        for state in JobState:
            cursor: str | None = None
            while True:
                page = await self.app.jobs.list(state, queue=run.queue, cursor=cursor, limit=_PAGE)
                async with self.visit() as link:
                    await link.many("add_ledger", [(job.id, str(job.state), job.attempt) for job in page.jobs])
                cursor = page.cursor
                if cursor is None:
                    break

    async def drop_tables(self, run: DemoRun | None) -> None:
        """Cancel what waits and drop the demo's tables; what has ended is left to retention."""
        for state in (JobState.READY, JobState.SCHEDULED):
            while run is not None and (page := await self.app.jobs.list(state, queue=run.queue, limit=_PAGE)).jobs:
                async with self.visit():  # one commit for the page
                    for job in page.jobs:
                        await self.app.jobs.cancel(job.id, "the demo was cleaned")
        async with self.visit() as link:
            for table in TABLES:
                await link.run(f"drop_{table}")

    async def drop_schema(self) -> None:
        """Drop the schema with all that is in it, the job of this visit too."""
        async with self.visit(completes=False) as link:
            await link.run("drop_schema")

    async def foreign(self) -> str | None:
        """Tell in words what the store holds beside demos: a queue, a worker, or a table of anybody else."""
        for queue in await self.app.queues.list():
            if not queue.name.startswith(QUEUE_PREFIX):
                return f"the queue {queue.name}"
        for worker in await self.app.workers():
            return f"the worker {worker.beat.worker_id}"
        async with self.visit() as link:
            for table in await self.ground.foreign_tables(link):
                return f"the table {table}"
        return None


async def _create(link: StatementRunner) -> None:
    for table in TABLES:
        await link.run(f"create_{table}")
    for table in TABLES[1:]:
        await link.run(f"index_{table}")
