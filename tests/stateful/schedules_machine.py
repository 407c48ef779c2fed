"""The rules of schedules: each verb is called on the store and on the reference model, and both must answer the same.

Workers of two versions of one app, and of another app, declare schedules; a person defines and removes others. The
clock also jumps ahead and back. No nominal time is fired a second time while its job is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.errors import ConfigError, ScheduleNotFound
from holdfast.model.job import JobState
from holdfast.model.outcome import Completed
from holdfast.model.schedule import Missed, recurrence
from holdfast.model.schedule_definition import ScheduleDefinition
from holdfast.store.backend import Backend
from holdfast.store.values import ClaimRequest, Finish, JobFilter, Retention
from holdfast.testing.clock import ManualClock
from holdfast.testing.reference import Reference, ReferenceBackend
from holdfast.testing.stores import open_store

NAMES = ("daily", "sweep")
TASKS = ("greet", "report")
OWNERS = ("shop", "shop", "billing")
SILENT = timedelta(minutes=5)
ALL = 1000
STATES = (JobState.READY, JobState.SCHEDULED, JobState.COMPLETED)

times = st.builds(
    lambda given, missed, jitter: recurrence(**given, missed=missed, jitter=jitter, window=timedelta(hours=6)),
    st.sampled_from([{"cron": "*/5 * * * *"}, {"cron": "30 2 * * *", "timezone": "Europe/Vienna"}, {"every": 90}]),
    st.sampled_from(Missed),
    st.sampled_from([timedelta(0), timedelta(minutes=2)]),
)
definitions = st.builds(ScheduleDefinition, times, st.sampled_from(TASKS))
declarations = st.dictionaries(st.sampled_from(NAMES), definitions)
steps = st.sampled_from([*(timedelta(seconds=s) for s in (1, 20, 90, 300, 900, 7200, 90_000, -5, -600, -7200))])


class SchedulesMachine(RuleBasedStateMachine):
    """Runs the store behind `url` beside the reference model, each example in an event loop of its own."""

    def url(self) -> str:
        """Return the URL of an empty store; asked for once in each example."""
        return "reference:"

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.reference = ReferenceBackend(Reference(self.clock))
        self.disputed: dict[str, dict[str, int]] = {owner: {} for owner in OWNERS}
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()

    async def open(self) -> Backend:
        url = self.url()
        if url == "reference:":
            return ReferenceBackend(Reference(self.clock))
        return await self.stack.enter_async_context(open_store(url, clock=self.clock))

    @initialize()
    def start(self) -> None:
        self.store = self.runner.run(self.open())

    def teardown(self) -> None:
        self.runner.run(self.stack.aclose())
        self.runner.close()

    def both(self, call: Callable[[Backend], Awaitable[Any]]) -> Any:
        """Return what a call answers on both, or the class of the error that it raises on both."""

        async def answer(backend: Backend) -> Any:
            try:
                return await call(backend)
            except (ConfigError, ScheduleNotFound) as error:
                return type(error)

        real, expected = self.runner.run(answer(self.store)), self.runner.run(answer(self.reference))
        assert real == expected
        return real

    @rule(step=steps)
    def pass_time(self, step: timedelta) -> None:
        self.clock.advance(step)

    @rule(
        tasks=st.sets(st.sampled_from(TASKS)), names=st.sets(st.sampled_from(NAMES)), limit=st.sampled_from([1, 3, 50])
    )
    def fire(self, tasks: set[str], names: set[str], limit: int) -> None:
        self.both(lambda backend: backend.schedules.fire(sorted(tasks), sorted(names), limit))

    @rule(owner=st.sampled_from(OWNERS), declared=declarations, starts=st.booleans())
    def declare(self, owner: str, declared: dict[str, ScheduleDefinition], starts: bool) -> None:
        """A worker that starts replaces definitions; one that has watched them overrules what it saw last."""
        overrules = None if starts else self.disputed[owner]
        answer = self.both(lambda backend: backend.schedules.declare(owner, declared, overrules=overrules))
        self.disputed[owner] = dict(answer.disputed)

    @rule(name=st.sampled_from(NAMES), definition=definitions)
    def put(self, name: str, definition: ScheduleDefinition) -> None:
        self.both(lambda backend: backend.schedules.put(name, definition))

    @rule(name=st.sampled_from(NAMES), verb=st.sampled_from(["pause", "resume"]))
    def pause_or_resume(self, name: str, verb: str) -> None:
        self.both(lambda backend: getattr(backend.schedules, verb)(name))

    @rule(name=st.sampled_from(NAMES))
    def remove(self, name: str) -> None:
        self.both(lambda backend: backend.schedules.remove(name, SILENT))

    @rule(prunes=st.booleans())
    def run_all(self, prunes: bool) -> None:
        async def work(backend: Backend) -> list[str]:
            request = ClaimRequest(worker_id="w", tasks=TASKS, limit=ALL, lease=timedelta(hours=1))
            await backend.jobs.promote(ALL)
            held = (await backend.jobs.claim(request)).jobs
            await backend.jobs.finish([Finish(job.lease, Completed()) for job in held])
            if prunes:
                kept = timedelta(days=1)
                await backend.jobs.prune(Retention(completed=kept, failed=kept, cancelled=kept), ALL)
            return sorted(job.id for job in held)

        self.both(work)

    @invariant()
    def the_schedules_agree(self) -> None:
        if hasattr(self, "store"):
            self.both(lambda backend: backend.schedules.list())

    @invariant()
    def the_jobs_agree(self) -> None:
        """The id of a job follows from its schedule and nominal time, so a time has one job while that is kept."""
        if not hasattr(self, "store"):
            return

        async def jobs(backend: Backend) -> list[tuple[str, str]]:
            pages = [await backend.insight.jobs(JobFilter(state, limit=ALL)) for state in STATES]
            return sorted((view.id, view.state.value) for page in pages for view in page.jobs)

        self.both(jobs)


__all__ = ["SchedulesMachine"]
