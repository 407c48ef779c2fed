"""The demo on a store without transactions: what it keeps are jobs, and what counts as an effect is a completion.

The records of a run are jobs that never become due, with the data in a header. The id of a job follows from its number,
so that the producer can repeat what it is not sure of, and a missing job is noticed by its id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar

import msgspec

from holdfast.app.claimed_job import retry_outcome
from holdfast.cli.demo.mysql_records import MysqlRecords
from holdfast.cli.demo.plan import DemoPlan, DemoRun
from holdfast.cli.demo.records import QUEUE_PREFIX, Records, Tried, failure_of, of_states
from holdfast.cli.demo.target import MYSQL
from holdfast.cli.demo.verdict import DemoTotals, Found
from holdfast.model.ids import new_id
from holdfast.model.job import FINAL_STATES, JobState
from holdfast.model.outcome import Completed
from holdfast.store.values import Finish, JobView, Verdict

_RECORDS = "holdfast-demo-records"
_RECORD = "holdfast_demo_record"
_NEVER = timedelta(days=3650)
_PATIENCE = 30.0  # seconds without the store
_PAGE = 1000
_SHOWN = 5


class JobRecords(Records):
    """The run and its jobs."""

    is_transactional: ClassVar = False

    def _prepare(self) -> None:
        def record() -> None:
            """Do nothing: only the header is used, and the job never becomes due."""

        self._record = self.app.task(name=_RECORD, queue=_RECORDS)(record)

    @property
    def place(self) -> str:
        """The demo's separate store, for messages."""
        return f"store at {self.app.backend.url}"

    async def _note(self, **facts: Any) -> None:
        text = msgspec.json.encode(facts).decode()
        await self._record.options(delay=_NEVER, headers={"demo": text}, patience=_PATIENCE).enqueue()

    async def run(self) -> DemoRun | None:
        """Return the run in the store, if there is one."""
        facts: dict[str, Any] = {}
        sums: Counter[str] = Counter()
        for job in await self._jobs(JobState.SCHEDULED, _RECORDS):
            noted = msgspec.json.decode((await self.app.jobs.show(job.id)).headers["demo"])
            sums.update({name: noted.pop(name) for name in ("killed", "seconds") if name in noted})
            facts |= {**noted, "produced": max(facts.get("produced", 0), noted.get("produced", 0))}
        if "queue" not in facts:
            return None
        plan = msgspec.convert(facts["plan"], DemoPlan)
        is_finished = bool(facts.get("finished"))
        return DemoRun(facts["queue"], plan, facts["produced"], sums["killed"], sums["seconds"], is_finished)

    async def begin(self, plan: DemoPlan) -> DemoRun:
        """Record a new run."""
        queue = QUEUE_PREFIX + new_id()
        await self._note(queue=queue, plan=plan)
        return DemoRun(queue, plan, 0, 0, 0.0, is_finished=False)

    async def end_session(self, killed: int, seconds: float, *, finished: bool) -> None:
        """Record the kills and the duration of a session."""
        await self._note(killed=killed, seconds=seconds, **({"finished": True} if finished else {}))

    async def produce(self, run: DemoRun, first: int, last: int) -> None:
        """Enqueue the jobs with these numbers, all or none, and record that."""
        task = self.task.options(queue=run.queue, max_attempts=run.plan.max_attempts, patience=_PATIENCE)
        numbers = range(first, last + 1)
        ids = [_id(run, number) for number in numbers]
        await task.enqueue_many([{"number": number} for number in numbers], job_ids=ids)
        await self._note(produced=last)

    async def ended(self, run: DemoRun) -> int:
        """Return how many jobs are completed or failed."""
        return len(await self._jobs(JobState.COMPLETED, run.queue)) + len(await self._jobs(JobState.FAILED, run.queue))

    async def write(self, tried: Sequence[Tried], worker: str) -> tuple[list[Tried], int]:
        """Write the outcomes of attempts; a completion has the used attempts and the worker as its result."""
        finishes = [
            Finish(
                job.job.lease,
                Completed(msgspec.json.encode([used_attempts, worker]).decode())
                if success
                else retry_outcome(job, failure_of(used_attempts), None),
            )
            for job, used_attempts, success in tried
        ]
        verdicts = await self.app.backend.jobs.finish(finishes)
        ended = [each for each, verdict in zip(tried, verdicts, strict=True) if verdict is not Verdict.LOST]
        return ended, len(tried) - len(ended)

    async def totals(self, run: DemoRun) -> DemoTotals:
        """Return the counts of a run; a doubled job is one that the store has counted as completed twice."""
        found = {state: await self._jobs(state, run.queue) for state in JobState}
        completed, failed = found[JobState.COMPLETED], found[JobState.FAILED]
        used = await self._used_attempts(completed)
        beyond = [job.attempt - used[job.id] for job in completed] + [job.attempt - job.max_attempts for job in failed]
        counts = await self.app.jobs.counts(timedelta(days=30), by_minute=False)
        completions = sum(count.completed for count in counts if count.queue == run.queue)
        expected = {_id(run, number) for number in range(1, run.produced + 1)}
        there = {job.id for jobs in found.values() for job in jobs}
        return DemoTotals(
            produced=run.produced,
            effects=completions,
            **of_states({state: len(jobs) for state, jobs in found.items()}),
            used_attempts=dict(Counter(used.values())),
            highest_attempt=max((job.attempt for jobs in found.values() for job in jobs), default=0),
            lost_attempts=sum(beyond),
            most_lost=max(beyond, default=0),
            doubled=Found(max(0, completions - len(completed)), ["which ones is not recorded"]),
            lost=_named(expected - there),
            strays=_named(there - expected),
            seconds=run.seconds,
            killed=run.killed,
        )

    async def _used_attempts(self, completed: list[JobView]) -> dict[str, int]:
        backend = self.app.backend
        used: dict[str, int] = {}
        for first in range(0, len(completed), _PAGE):
            for job in await backend.insight.states([job.id for job in completed[first : first + _PAGE]]):
                used[job.id] = msgspec.json.decode(job.result or "[0]")[0]
        return used

    async def _jobs(self, state: JobState, queue: str) -> list[JobView]:
        jobs: list[JobView] = []
        cursor: str | None = None
        while True:
            page = await self.app.jobs.list(state, queue=queue, cursor=cursor, limit=_PAGE)
            jobs += page.jobs
            cursor = page.cursor
            if cursor is None:
                return jobs

    async def drop_tables(self, run: DemoRun | None) -> None:
        """Cancel and delete the jobs of demos."""
        del run  # those of all demos
        names = [queue.name for queue in await self.app.queues.list() if queue.name.startswith(QUEUE_PREFIX)]
        for name in names:
            for state in (JobState.SCHEDULED, JobState.BLOCKED, JobState.READY):
                await self.app.jobs.cancel_all(state, queue=name, reason="the demo was removed")
            for state in FINAL_STATES:
                await self.app.jobs.delete_all(state, queue=name)

    async def drop_schema(self) -> None:
        """Do the same: an empty store is left."""
        await self.drop_tables(None)

    async def _foreign_table(self) -> str | None:
        """There are no tables."""


def _id(run: DemoRun, number: int) -> str:
    """Return the id of a job: that of the run, which is in its queue's name, with the number at its end."""
    return f"{run.queue.removeprefix(QUEUE_PREFIX)[:-12]}{number:012x}"


def _named(ids: set[str]) -> Found:
    return Found(len(ids), sorted(ids)[:_SHOWN])


def records_of(app: Any) -> Records:
    """Return the records of a demo on an app's store."""
    capabilities = app.backend.capabilities
    if capabilities.store in MYSQL:
        return MysqlRecords(app)
    return Records(app) if capabilities.joins_transactions else JobRecords(app)
