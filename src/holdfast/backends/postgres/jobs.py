"""Jobs on PostgreSQL: the shared contract over rows, with this store's enqueue, claim and completion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial

import psycopg

from holdfast.backends.postgres.blockers import Blockers
from holdfast.backends.postgres.runners import BRIEFLY
from holdfast.backends.postgres.verbs import claim as claiming
from holdfast.backends.postgres.verbs import enqueue as enqueuing
from holdfast.backends.postgres.verbs.finish import complete_all
from holdfast.backends.sql.floor_claims import JobsWithFloors
from holdfast.backends.sql.lane_cache import Lanes
from holdfast.backends.sql.pool_runner import runs_alone
from holdfast.backends.sql.steps import rows
from holdfast.model.job import NewJob
from holdfast.store.claim_floor import Floors, Place
from holdfast.store.job_rows import JobRows
from holdfast.store.steps import LockedTooLong, Runner, Steps
from holdfast.store.values import Claim, ClaimRequest, Enqueued, Finish, Verdict
from holdfast.store.verbs.enqueue import Insert, enqueue
from holdfast.store.verbs.finish import only_completes
from holdfast.store.verbs.rescue import ExpiredLook
from holdfast.store.verbs.unique import are_unique

COPY_FROM = 300  # jobs: from this number on, COPY is worth its additional round trips


class PostgresJobs(JobsWithFloors):
    """`JobStore` on PostgreSQL."""

    def __init__(
        self,
        runner: Runner,
        rows: JobRows,
        *,
        lanes: Lanes,
        floors: Floors,
        blockers: Blockers,
        ended: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(runner, rows, lanes=lanes, floors=floors, ended=ended)
        self._blockers = blockers
        self._in_callers_transaction = ended is None

    async def enqueue_plain(self, jobs: Sequence[NewJob]) -> list[bool]:  # noqa: D102 - the port states the contracts
        if not jobs:
            return []
        lanes = await self._lanes.of(jobs)
        if any(job.order_key is not None or job.limit_key is not None for job in jobs):
            return await self._runner.write(partial(enqueuing.insert_any, jobs, lanes, joins=self._joins))
        if len(jobs) >= COPY_FROM and runs_alone(self._runner):
            try:
                return await self._runner.write(lambda: enqueuing.copy(jobs, lanes))
            except psycopg.errors.UniqueViolation:
                lanes = await self._lanes.of(jobs)
        run = self._runner.once if len(jobs) <= enqueuing.CHUNK else self._runner.write
        return await run(lambda: enqueuing.insert(jobs, lanes))

    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        """Insert jobs with free unique keys in one statement, and copy very many of them in.

        Whatever else there is to decide is left to the shared code, also if another call takes a key meanwhile.
        """
        if runs_alone(self._runner) and are_unique(jobs):
            lanes = await self._lanes.of(jobs)
            with suppress(psycopg.errors.UniqueViolation):
                if len(jobs) > enqueuing.CHUNK:
                    copy = partial(enqueuing.copy, lanes=lanes)
                    return await self._runner.write(lambda: enqueue(self._rows, jobs, copy))
                if made := await self._runner.once(lambda: enqueuing.insert_free(jobs, lanes)):
                    return made
        return await super().enqueue(jobs)

    async def inserter(self, jobs: Sequence[NewJob]) -> Insert:  # noqa: D102
        return partial(enqueuing.insert_any, lanes=await self._lanes.of(jobs), joins=self._joins)

    @property
    def _joins(self) -> bool:
        """Whether the next verb runs in a transaction that others keep open: of a handler or a caller."""
        return self._in_callers_transaction or self._runner.joins

    async def take(self, request: ClaimRequest, floors: dict[int, Place]) -> claiming.Taken:
        """Claim in one statement."""
        return await self._runner.once(lambda: claiming.claim(request, floors))

    def take_limited(self, request: ClaimRequest) -> Steps[Claim]:  # noqa: D102
        return claiming.claim_limited(request)

    async def finish(self, finishes: Sequence[Finish], *, briefly: bool = False) -> list[Verdict]:
        """Complete the jobs that no job follows in one statement; the others are left to the shared code.

        So are refused leases: a job may be followed only since the statement began.
        """
        if not finishes or not only_completes(finishes):
            return await super().finish(finishes, briefly=briefly)
        patience = BRIEFLY if briefly and runs_alone(self._runner) else None
        try:
            refused, _ = await self._runner.once(lambda: complete_all(finishes, followed=False, patience=patience))
        except LockedTooLong:
            if patience is None:
                raise
            return await self._finish_reachable(finishes)
        self._ended()
        if not refused:
            return [Verdict.DONE] * len(finishes)
        left = [item for item in finishes if (item.lease.seq, item.lease.fence) in refused]
        verdicts = iter(await super().finish(left, briefly=briefly))
        return [next(verdicts) if (item.lease.seq, item.lease.fence) in refused else Verdict.DONE for item in finishes]

    async def prepare_rescue(self, unbroken: timedelta | None) -> ExpiredLook:
        """End the sessions of frozen clients that lock rows which a rescue needs."""
        await self._blockers.end_stuck()
        look = await super().prepare_rescue(unbroken)
        if look.found:
            await self._blockers.end_for_leases(look.access)
        return look

    async def follow_rescue(self, look: ExpiredLook) -> None:
        """End a session that is found only by waiting for its row."""
        await self._blockers.end_hidden(look.access)


def facts(schema: str) -> Steps[dict[str, str]]:
    """Return the facts of the server: the verb of `Insight.facts`."""
    return {**dict((yield from rows("server_facts"))), "schema": schema}
