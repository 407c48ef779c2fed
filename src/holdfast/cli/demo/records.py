"""Access to the demo's tables, as a handler has it: in the transaction of a leased job.

Each visit is a small separate job, enqueued and claimed here. So the demo needs no driver and no second connection, and
its records commit together with the jobs that it enqueues in the same visit.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from holdfast.cli.demo.plan import DemoPlan, DemoRun
from holdfast.cli.demo.target import TABLES, DemoStatements, StatementRunner
from holdfast.cli.demo.verdict import DemoTotals, Found
from holdfast.errors import HoldfastError
from holdfast.model.ids import new_id
from holdfast.model.job import FINAL_STATES, JobState

if TYPE_CHECKING:
    from holdfast.app.app import App
    from holdfast.app.batch import Batch
    from holdfast.app.claimed_job import ClaimedJob
    from holdfast.app.tasks import TaskHandle

QUEUE_PREFIX = "holdfast-demo-"
_VISITS = "holdfast-demo-visits"
_VISIT = "holdfast_demo_visit"
_JOBS = "holdfast-demo-jobs"
_JOB = "holdfast_demo_job"
DemoAttempt = tuple["ClaimedJob", int, bool]
"""A job, its used attempts, and whether the last of them was a success."""
_LEASE = 600.0  # a visit may take up to a third of this
_PAGE = 1000


class Records:
    """The run, its jobs and their effects."""

    largest_batch: ClassVar = 10_000
    """Jobs that one transaction ends at most."""

    def __init__(self, app: App) -> None:
        self.app = app

        def numbered(number: int) -> int:
            """Carry a number; workers claim these jobs and never call this."""
            return number

        self.task: TaskHandle[[int], int] = app.task(name=_JOB, queue=_JOBS, retry=0.1)(numbered)

        def visit() -> None:
            """Do nothing: only the transaction of the leased job is used."""

        self._visit: TaskHandle[[], None] = app.task(name=_VISIT, queue=_VISITS)(visit)

    @cached_property
    def statements(self) -> DemoStatements:
        """The statements in the dialect of the store."""
        return DemoStatements.of(self.app)

    @property
    def place(self) -> str:
        """The demo's separate store, for messages."""
        return f"schema {self.statements.schema} at {self.app.backend.url.partition('?')[0]}"

    async def create_place(self) -> None:
        """Create what must be there before Holdfast's tables are installed."""

    @asynccontextmanager
    async def visit(self, *, completes: bool = True) -> AsyncGenerator[StatementRunner]:
        """Open a transaction for statements; jobs enqueued inside commit with it."""
        async with self.inside(completes=completes) as connection:
            yield self.statements.link(connection)

    @asynccontextmanager
    async def inside(self, *, completes: bool = True) -> AsyncGenerator[Any]:
        """Open a transaction; return what writes in it."""
        await self._visit.enqueue()
        held = await self.app.claim(_VISITS, 1, tasks=[_VISIT], lease=_LEASE, worker_id="holdfast-demo")
        while not held:  # another process has claimed this visit: enqueue and claim another one
            await self._visit.enqueue()
            held = await self.app.claim(_VISITS, 1, tasks=[_VISIT], lease=_LEASE, worker_id="holdfast-demo")
        try:
            async with held[0].context().transaction(completes=completes) as connection:
                yield connection
        except BaseException:
            with contextlib.suppress(HoldfastError):  # the first error is raised; the lease expires by itself
                await held[0].complete()
            raise

    # --- the run ----------------------------------------------------------------------------------------------------

    async def run(self) -> DemoRun | None:
        """Return the run in the store, if there is one."""
        async with self.visit() as link:
            rows = await link.rows("read_run") if await self.statements.has_tables(link) else []
        for queue, plan, produced, killed, seconds, finished in rows:
            return DemoRun(queue, msgspec.json.decode(plan, type=DemoPlan), produced, killed, seconds, bool(finished))
        return None

    async def begin(self, plan: DemoPlan) -> DemoRun:
        """Create the tables and record a new run."""
        queue = QUEUE_PREFIX + new_id()[-12:]
        async with self.visit() as link:
            await self._create(link)
            await link.run("begin_run", queue, msgspec.json.encode(plan).decode())
        return DemoRun(queue, plan, 0, 0, 0.0, is_finished=False)

    async def _create(self, link: StatementRunner) -> None:
        for table in TABLES:
            await link.run(f"create_{table}")
        for table in TABLES[1:]:
            await link.run(f"index_{table}")

    async def end_session(self, killed: int, seconds: float, *, finished: bool) -> None:
        """Record the kills and the duration of a session."""
        async with self.visit() as link:
            await link.run("note_session", killed, seconds, int(finished))

    async def produce(self, run: DemoRun, first: int, last: int) -> None:
        """Enqueue and record the jobs with these numbers, all or none."""
        task = self.task.options(queue=run.queue, max_attempts=run.plan.max_attempts)
        numbers = range(first, last + 1)
        async with self.visit() as link:
            jobs = await task.enqueue_many([{"number": number} for number in numbers])
            await link.many("add_job", [(job.id, number) for job, number in zip(jobs, numbers, strict=True)])
            await link.run("note_produced", last)

    async def ended(self, run: DemoRun) -> int:
        """Return how many jobs have taken effect or failed."""
        effects = await self._count_effects()
        return effects + sum(queue.failed for queue in await self.app.queues.list() if queue.name == run.queue)

    async def _count_effects(self) -> int:
        async with self.visit() as link:
            return await link.number("count_effects")

    async def write(self, attempts: Sequence[DemoAttempt], worker: str) -> tuple[list[DemoAttempt], int]:
        """Write the effects and outcomes of attempts; return what was still held, and how many were not.

        Raises `LeaseLost` or `TransactionExpired` if nothing was written.
        """
        async with self.app.batch([job for job, _, _ in attempts]) as batch:
            ended = end(batch, attempts)
            effects = [
                (job.id, job.job.attempt, used_attempts, job.job.fence, worker)
                for job, used_attempts, success in ended
                if success
            ]
            await self.statements.link(batch.connection).many("add_effect", effects)
        return ended, len(batch.lost)

    # --- the whole --------------------------------------------------------------------------------------------------

    async def totals(self, run: DemoRun) -> DemoTotals:
        """Return the counts of a run."""
        await self._copy_ledger(run)
        async with self.visit() as link:
            states = dict(await link.rows("count_states"))
            ((lost_attempts, most_lost),) = await link.rows("lost_attempts", run.plan.max_attempts)
            return DemoTotals(
                produced=await link.number("count_jobs"),
                effects=await link.number("count_effects"),
                **of_states(states),
                used_attempts=dict(await link.rows("histogram")),
                highest_attempt=await link.number("highest"),
                lost_attempts=int(lost_attempts),
                most_lost=int(most_lost),
                doubled=await _found(link, "doubled"),
                lost=await _found(link, "lost"),
                strays=await _found(link, "strays"),
                seconds=run.seconds,
                killed=run.killed,
            )

    async def _copy_ledger(self, run: DemoRun) -> None:
        """Copy the state of every job of the run into a table, so that it can be compared with the effects."""
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
        """Cancel waiting jobs and drop the demo's tables; finished jobs are left to retention."""
        for state in (JobState.READY, JobState.SCHEDULED):
            while run is not None and (page := await self.app.jobs.list(state, queue=run.queue, limit=_PAGE)).jobs:
                async with self.visit():  # one commit for the page
                    for job in page.jobs:
                        await self.app.jobs.cancel(job.id, "the demo was removed")
        await self._drop()

    async def _drop(self) -> None:
        async with self.visit() as link:
            for table in TABLES:
                await link.run(f"drop_{table}")

    async def drop_schema(self) -> None:
        """Drop the schema with everything in it, including the job of this visit."""
        async with self.visit(completes=False) as link:
            await link.run("drop_schema")

    async def foreign(self) -> str | None:
        """Return a description of data that is not a demo's: a queue, a worker or a table; None if there is none."""
        for queue in await self.app.queues.list():
            if not queue.name.startswith(QUEUE_PREFIX):
                return f"the queue {queue.name}"
        for worker in await self.app.workers():
            return f"the worker {worker.heartbeat.worker_id}"
        return await self._foreign_table()

    async def _foreign_table(self) -> str | None:
        async with self.visit() as link:
            for table in await self.statements.foreign_tables(link):
                return f"the table {table}"
        return None


def end(batch: Batch, attempts: Sequence[DemoAttempt]) -> list[DemoAttempt]:
    """Complete or retry the jobs that are still held, and return them."""
    still_held = {job.id for job in batch.held}
    ended = [each for each in attempts if each[0].id in still_held]
    for job, used_attempts, success in ended:
        if success:
            batch.complete(job)
        else:
            batch.retry(job, f"attempt {used_attempts} failed at random")
    return ended


def of_states(states: Mapping[str, int]) -> dict[str, int]:
    """Return the counts that follow from the number of jobs in each state."""
    return {
        **{str(state): states.get(state, 0) for state in FINAL_STATES},
        "left": sum(number for state, number in states.items() if state not in FINAL_STATES),
    }


async def _found(link: StatementRunner, statement: str) -> Found:
    rows: list[tuple[str, int]] = await link.rows(statement)
    return Found(rows[0][1], [job_id for job_id, _ in rows]) if rows else Found()
