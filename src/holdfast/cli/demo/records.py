"""The demo's own tables in the store, reached as a handler reaches them: in the transaction of a leased job.

Each visit is a small job of its own, enqueued and claimed here. So the demo needs no driver and no second connection,
and what it writes about the run commits together with the jobs that it enqueues in the same visit.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

import msgspec

from holdfast.app.app import App
from holdfast.app.tasks import TaskHandle
from holdfast.cli.demo.plan import Plan, Run
from holdfast.errors import ConfigError, HoldfastError
from holdfast.model.ids import new_id
from holdfast.model.job import JobState

QUEUE_PREFIX = "holdfast-demo-"
_VISITS = "holdfast-demo-visits"
_VISIT = "holdfast_demo_visit"
_WORKS = "holdfast-demo-works"
_WORK = "holdfast_demo_work"
_LEASE = 600.0  # a visit may last a third of this
_PAGE = 1000
_TABLES = ("run", "work", "effect", "ledger")
_HEADER = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def _load() -> dict[str, str]:
    parts = _HEADER.split(files("holdfast.cli.demo").joinpath("demo.sql").read_text(encoding="utf-8"))
    return {name: text.strip().rstrip(";") for name, text in zip(parts[1::2], parts[2::2], strict=True)}


STATEMENTS = _load()


class Records:
    """The run, its works and their effects."""

    def __init__(self, app: App) -> None:
        self.app = app

        def visit() -> None:
            """Hold a lease, so that its transaction can be used."""

        def work(number: int) -> int:
            """Be numbered; consumers claim works and never call this."""
            return number

        self._visit: TaskHandle[[], None] = app.task(name=_VISIT, queue=_VISITS)(visit)
        self.work: TaskHandle[[int], int] = app.task(name=_WORK, queue=_WORKS, retry=0.1)(work)

    async def require_sqlite(self) -> None:
        """Refuse a store whose tables the demo's statements do not fit."""
        capabilities = (await self.app.opened()).capabilities
        if capabilities.store != "sqlite" or not capabilities.shared:
            message = (
                "the demo needs a SQLite file: its consumers are processes of their own, and its tables are SQLite's"
            )
            raise ConfigError(message)

    @asynccontextmanager
    async def visit(self) -> AsyncGenerator[Any]:
        """Open a transaction; what is enqueued inside commits with it."""
        await self._visit.enqueue()
        held = await self.app.claim(_VISITS, 1, tasks=[_VISIT], lease=_LEASE, worker_id="holdfast-demo")
        while not held:  # another process has claimed ours: claim one of those that follow
            await self._visit.enqueue()
            held = await self.app.claim(_VISITS, 1, tasks=[_VISIT], lease=_LEASE, worker_id="holdfast-demo")
        try:
            async with held[0].context().transaction() as connection:
                yield connection
        except BaseException:
            with contextlib.suppress(HoldfastError):  # the first error is the one to tell; the lease ends by itself
                await held[0].complete()
            raise

    # --- the run ----------------------------------------------------------------------------------------------------

    async def run(self) -> Run | None:
        """Return the run that the store holds, if any."""
        async with self.visit() as connection:
            await self._create(connection)
            row = (await connection.execute(STATEMENTS["read_run"])).fetchone()
        if row is None:
            return None
        queue, plan, produced, killed, seconds, finished = row
        return Run(queue, msgspec.json.decode(plan, type=Plan), produced, killed, seconds, bool(finished))

    async def begin(self, plan: Plan) -> Run:
        """Note a new run."""
        queue = QUEUE_PREFIX + new_id()[-12:]
        async with self.visit() as connection:
            await connection.execute(STATEMENTS["begin_run"], (queue, msgspec.json.encode(plan).decode()))
        return Run(queue, plan, 0, 0, 0.0, is_finished=False)

    async def end_session(self, killed: int, seconds: float, *, finished: bool) -> None:
        """Note what a session has come to."""
        async with self.visit() as connection:
            await connection.execute(STATEMENTS["note_session"], (killed, seconds, int(finished)))

    async def produce(self, run: Run, first: int, last: int) -> None:
        """Enqueue the works of these numbers, and note them, all or none."""
        task = self.work.options(queue=run.queue, max_attempts=run.plan.max_attempts)
        numbers = range(first, last + 1)
        async with self.visit() as connection:
            jobs = await task.enqueue_many([{"number": number} for number in numbers])
            works = [(job.id, number) for job, number in zip(jobs, numbers, strict=True)]
            await connection.executemany(STATEMENTS["add_work"], works)
            await connection.execute(STATEMENTS["note_produced"], (last,))

    async def ended(self, run: Run) -> int:
        """Return how many works have taken effect or were given up."""
        async with self.visit() as connection:
            effects: int = (await connection.execute(STATEMENTS["count_effects"])).fetchone()[0]
        return effects + sum(queue.failed for queue in await self.app.queues.list() if queue.name == run.queue)

    # --- the whole --------------------------------------------------------------------------------------------------

    async def copy_ledger(self, run: Run) -> None:
        """Write down where every work of the run stands, so that it can be compared with the effects."""
        async with self.visit() as connection:
            await connection.execute(STATEMENTS["clear_ledger"])
        for state in JobState:
            cursor: str | None = None
            while True:
                page = await self.app.jobs.list(state, queue=run.queue, cursor=cursor, limit=_PAGE)
                async with self.visit() as connection:
                    rows = [(job.id, str(job.state), job.attempt) for job in page.jobs]
                    await connection.executemany(STATEMENTS["add_ledger"], rows)
                cursor = page.cursor
                if cursor is None:
                    break

    async def clean(self, run: Run | None) -> None:
        """Cancel what waits and drop the demo's tables; what has ended is left to retention."""
        for state in (JobState.READY, JobState.SCHEDULED):
            while run is not None and (page := await self.app.jobs.list(state, queue=run.queue, limit=_PAGE)).jobs:
                async with self.visit():  # one commit for the page
                    for job in page.jobs:
                        await self.app.jobs.cancel(job.id, "the demo was cleaned")
        async with self.visit() as connection:
            for table in _TABLES:
                await connection.execute(STATEMENTS[f"drop_{table}"])

    async def is_alone(self) -> bool:
        """Tell whether the store holds nothing but demos: no other queue, no worker, and no table of anybody else."""
        async with self.visit() as connection:
            others = (await connection.execute(STATEMENTS["count_foreign"])).fetchone()[0]
        queues = await self.app.queues.list()
        is_ours = all(queue.name.startswith(QUEUE_PREFIX) for queue in queues)
        return is_ours and not others and not await self.app.workers()

    @staticmethod
    async def _create(connection: Any) -> None:
        for table in _TABLES:
            await connection.execute(STATEMENTS[f"create_{table}"])
        for table in _TABLES[1:]:
            await connection.execute(STATEMENTS[f"index_{table}"])
