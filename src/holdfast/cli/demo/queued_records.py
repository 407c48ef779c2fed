"""The demo on a store that queues effects: the run is a hash, and its effects are a list, next to the store's keys.

A run has more jobs than one transaction enqueues. The id of a job follows from its number, so that the producer can
repeat what it is not sure of, and a missing job is noticed by its id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

import msgspec

from holdfast.cli.demo.plan import DemoPlan, DemoRun
from holdfast.cli.demo.records import QUEUE_PREFIX, DemoAttempt, Records, end, of_states
from holdfast.cli.demo.verdict import DemoTotals, Found
from holdfast.model.ids import new_id
from holdfast.model.job import FINAL_STATES, JobState
from holdfast.store.values import JobView

_RUN = "holdfast_demo_run"
_EFFECT = "holdfast_demo_effect"
_PATIENCE = 30.0  # seconds without the store
_PAGE = 1000
_EFFECTS = 5000  # read in one transaction
_SHOWN = 5


class QueuedEffect(msgspec.Struct, frozen=True, array_like=True):
    """An entry of the list, which takes every entry, so that a job that took effect twice is in it twice."""

    job_id: str
    attempt: int
    used_attempts: int
    fence: int


class QueuedRecords(Records):
    """The run, its jobs and their effects."""

    largest_batch: ClassVar = 500

    @property
    def place(self) -> str:
        """The demo's separate store, for messages."""
        return f"store at {self.app.backend.url}"

    async def run(self) -> DemoRun | None:
        """Return the run in the store, if there is one."""
        async with self.inside() as connection:
            found = await connection.read("HGETALL", connection.key(_RUN))
        facts = dict(zip(map(bytes.decode, found[::2]), found[1::2], strict=True))
        if not facts:
            return None
        plan = msgspec.json.decode(facts["plan"], type=DemoPlan)
        produced, killed, finished = (int(facts[name]) for name in ("produced", "killed", "finished"))
        return DemoRun(facts["queue"].decode(), plan, produced, killed, float(facts["seconds"]), bool(finished))

    async def begin(self, plan: DemoPlan) -> DemoRun:
        """Record a new run."""
        queue = QUEUE_PREFIX + new_id()
        nothing = ("produced", 0, "killed", 0, "seconds", 0, "finished", 0)
        async with self.inside() as connection:
            connection.queue("UNLINK", connection.key(_EFFECT))
            connection.queue("HSET", connection.key(_RUN), "queue", queue, "plan", msgspec.json.encode(plan), *nothing)
        return DemoRun(queue, plan, 0, 0, 0.0, is_finished=False)

    async def end_session(self, killed: int, seconds: float, *, finished: bool) -> None:
        """Record the kills and the duration of a session."""
        async with self.inside() as connection:
            at = connection.key(_RUN)
            connection.queue("HINCRBY", at, "killed", killed)
            connection.queue("HINCRBYFLOAT", at, "seconds", seconds)
            connection.queue("HSET", at, "finished", int(finished))

    async def produce(self, run: DemoRun, first: int, last: int) -> None:
        """Enqueue the jobs with these numbers, all or none, and record that."""
        task = self.task.options(queue=run.queue, max_attempts=run.plan.max_attempts, patience=_PATIENCE)
        numbers = range(first, last + 1)
        ids = [_id(run, number) for number in numbers]
        await task.enqueue_many([{"number": number} for number in numbers], job_ids=ids)
        async with self.inside() as connection:
            connection.queue("HSET", connection.key(_RUN), "produced", last)

    async def _count_effects(self) -> int:
        async with self.inside() as connection:
            return int(await connection.read("LLEN", connection.key(_EFFECT)))

    async def write(self, attempts: Sequence[DemoAttempt], worker: str) -> tuple[list[DemoAttempt], int]:
        """Write the effects and outcomes of attempts; raises `LeaseLost` if nothing was written."""
        del worker
        async with self.app.batch([job for job, _, _ in attempts]) as batch:
            ended = end(batch, attempts)
            effects = [
                msgspec.json.encode(QueuedEffect(job.id, job.job.attempt, used_attempts, job.job.fence))
                for job, used_attempts, success in ended
                if success
            ]
            if effects:
                batch.connection.queue("RPUSH", batch.connection.key(_EFFECT), *effects)
        return ended, len(batch.lost)

    async def totals(self, run: DemoRun) -> DemoTotals:
        """Return the counts of a run."""
        effects = await self._effects()
        found = {state: await self._jobs(state, run.queue) for state in JobState}
        completed = {job.id: job.attempt for job in found[JobState.COMPLETED]}
        beyond = [effect.attempt - effect.used_attempts for effect in effects]
        beyond += [job.attempt - job.max_attempts for job in found[JobState.FAILED]]
        times = Counter(effect.job_id for effect in effects)
        used = {effect.job_id: effect.used_attempts for effect in effects}
        elsewhere = {job.id for state, jobs in found.items() if state is not JobState.COMPLETED for job in jobs}
        expected = {_id(run, number) for number in range(1, run.produced + 1)}
        return DemoTotals(
            produced=run.produced,
            effects=len(effects),
            **of_states({state: len(jobs) for state, jobs in found.items()}),
            used_attempts=dict(Counter(used.values())),
            highest_attempt=max((job.attempt for jobs in found.values() for job in jobs), default=0),
            lost_attempts=sum(beyond),
            most_lost=max(beyond, default=0),
            doubled=_named({job_id for job_id, count in times.items() if count > 1}),
            lost=_named(expected - used.keys() - elsewhere),
            strays=_named(
                {each.job_id for each in effects if completed.get(each.job_id) != each.attempt}
                | (used.keys() - expected)
            ),
            seconds=run.seconds,
            killed=run.killed,
        )

    async def _effects(self) -> list[QueuedEffect]:
        effects: list[QueuedEffect] = []
        while True:
            async with self.inside() as connection:
                first, last = len(effects), len(effects) + _EFFECTS - 1
                page: list[bytes] = await connection.read("LRANGE", connection.key(_EFFECT), first, last)
            effects += [msgspec.json.decode(each, type=QueuedEffect) for each in page]
            if len(page) < _EFFECTS:
                return effects

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
        """Cancel and delete the jobs of demos, and delete the run and its effects."""
        del run  # those of all demos
        async with self.inside() as connection:
            connection.queue("UNLINK", connection.key(_RUN), connection.key(_EFFECT))
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
