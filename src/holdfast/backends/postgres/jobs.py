"""The port's verbs for jobs, on PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta

import psycopg

from holdfast.backends.postgres.blockers import Blockers
from holdfast.backends.postgres.claim_floor import Floors
from holdfast.backends.postgres.lane_cache import Lanes
from holdfast.backends.postgres.runners import PoolRunner
from holdfast.backends.postgres.verbs import claim as claiming
from holdfast.backends.postgres.verbs import enqueue as enqueuing
from holdfast.backends.postgres.verbs import finish as finishing
from holdfast.backends.postgres.verbs import insight, leases, operate, rescue, upkeep
from holdfast.backends.postgres.verbs.lines import Placed
from holdfast.backends.postgres.verbs.moves import Moves
from holdfast.backends.sql.handler_transaction import current
from holdfast.backends.sql.steps import value
from holdfast.model.job import Lease, NewJob
from holdfast.store.steps import Runner
from holdfast.store.values import (
    Cancellation,
    Claim,
    ClaimRequest,
    Finish,
    Outstanding,
    Promotion,
    Rescued,
    Retention,
    Standing,
    Verdict,
)

COPY_FROM = 300  # so many jobs, and COPY pays for its further round trips


class PostgresJobs:
    """`JobStore` on PostgreSQL."""

    def __init__(
        self,
        runner: Runner,
        *,
        lanes: Lanes,
        floors: Floors,
        blockers: Blockers,
        notify: Callable[[], None],
    ) -> None:
        self._runner = runner
        self._lanes = lanes
        self._floors = floors
        self._blockers = blockers
        self._notify = notify

    def _hint(self) -> None:
        """Wake whoever waits for work, once what was written can be seen."""
        transaction = current.get()
        if transaction is not None and isinstance(self._runner, PoolRunner) and self._runner.joins:
            transaction.after_commit.append(self._notify)
        else:
            self._notify()

    def _lie_ready(self, moves: Moves) -> None:
        if moves.ready:
            for place in moves.ready:
                self._floors.lower(*place)
            self._hint()

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[bool]:  # noqa: D102 - the port states the contracts
        if not jobs:
            return []
        on_its_own = isinstance(self._runner, PoolRunner) and not self._runner.joins
        if any(job.order_key is not None for job in jobs):
            created = await self._insert_in_lines(jobs)
        elif on_its_own and len(jobs) >= COPY_FROM:
            created = await self._copy(jobs)
        else:
            created = await self._insert(jobs)
        self._hint()
        return created

    async def _copy(self, jobs: Sequence[NewJob]) -> list[bool]:
        lanes = await self._lanes.of(jobs)
        try:
            created, ready = await self._runner.write(lambda: enqueuing.copy(jobs, lanes))
        except psycopg.errors.UniqueViolation:
            return await self._insert(jobs)
        self._lower(ready)
        return created

    async def _insert(self, jobs: Sequence[NewJob]) -> list[bool]:
        lanes = await self._lanes.of(jobs)
        run = self._runner.once if len(jobs) <= enqueuing.CHUNK else self._runner.write
        created, ready = await run(lambda: enqueuing.insert(jobs, lanes))
        self._lower(ready)
        return created

    async def _insert_in_lines(self, jobs: Sequence[NewJob]) -> list[bool]:
        lanes = await self._lanes.of(jobs)
        created, ready = await self._runner.write(lambda: enqueuing.insert_in_lines(jobs, lanes))
        self._lower(ready)
        return created

    def _lower(self, ready: Sequence[Placed]) -> None:
        """The first of each lane is enough: the others lie behind it."""
        first: dict[int, tuple[int, int]] = {}
        for lane_id, turn, seq in ready:
            known = first.get(lane_id)
            if known is None or (turn, seq) < known:
                first[lane_id] = (turn, seq)
        for lane_id, (turn, seq) in first.items():
            self._floors.lower(lane_id, turn, seq)

    async def claim(self, request: ClaimRequest) -> Claim:  # noqa: D102
        if request.limit < 1 or not request.tasks:
            return Claim([])
        taken, scanned = await self._claim(request)
        if not taken.jobs and not scanned and self._floors.came_short(found_none=True):
            taken, scanned = await self._claim(request)
        elif len(taken.jobs) < request.limit and not taken.is_cut:
            self._floors.came_short(found_none=False)
        return taken

    async def _claim(self, request: ClaimRequest) -> tuple[Claim, bool]:
        floors, mark = self._floors.hints()
        began = time.monotonic()
        taken = await self._runner.once(lambda: claiming.claim(request, floors))
        self._floors.claimed(mark, taken.places, took=time.monotonic() - began, scanned=not floors)
        return taken.claim, not floors

    async def finish(self, finishes: Sequence[Finish]) -> list[Verdict]:  # noqa: D102
        if not finishes:
            return []
        if finishing.only_completes(finishes):
            done, heads = await self._runner.once(lambda: finishing.complete_all(finishes, keyed=False))
            if not heads:
                if len(done) == len(finishes):
                    return [Verdict.DONE] * len(finishes)
                return await self._runner.look(lambda: finishing.verdicts(finishes, done))
        verdicts, moves = await self._runner.write(lambda: finishing.finish(finishes))
        self._lie_ready(moves)
        return verdicts

    async def release(self, leases: Sequence[Lease], *, started: bool) -> list[Verdict]:  # noqa: D102
        verdicts, moves = await self._runner.write(lambda: rescue.release(leases, started=started))
        self._lie_ready(moves)
        return verdicts

    async def unheard(self, worker_id: str, after: int) -> list[Lease]:  # noqa: D102
        return await self._runner.look(lambda: leases.unheard(worker_id, after))

    async def promote(self, limit: int) -> Promotion:  # noqa: D102
        next_due = await self._runner.look(upkeep.next_due)
        if next_due is None or next_due > timedelta(0):
            return Promotion(0, next_due)
        promotion, moved = await self._runner.write(lambda: upkeep.promote(limit))
        self._lower(moved)
        self._hint()
        return promotion

    async def rescue(self, unbroken: timedelta | None, limit: int) -> list[Rescued]:  # noqa: D102
        asked_at = time.monotonic()
        await self._blockers.end_stuck()
        if not await self._runner.look(lambda: rescue.any_expired(unbroken)):
            return []
        await self._blockers.end_for_leases(unbroken)
        rescued, moves = await self._runner.write(lambda: rescue.rescue(unbroken, limit, asked_at=asked_at))
        self._lie_ready(moves)
        return rescued

    async def rescue_worker(self, worker_id: str, reason: str, limit: int) -> list[Rescued]:  # noqa: D102
        rescued, moves = await self._runner.write(lambda: rescue.rescue_worker(worker_id, reason, limit))
        self._lie_ready(moves)
        return rescued

    async def reset(self, job_id: str) -> bool:  # noqa: D102
        done, moves = await self._runner.write(lambda: operate.reset(job_id))
        self._lie_ready(moves)
        return done

    async def cancel(self, job_id: str, reason: str) -> Cancellation:  # noqa: D102
        cancellation, moves = await self._runner.write(lambda: operate.cancel(job_id, reason))
        self._lie_ready(moves)
        return cancellation

    async def retry(self, job_id: str) -> bool:  # noqa: D102
        done, moves = await self._runner.write(lambda: operate.retry(job_id))
        self._lie_ready(moves)
        return done

    async def progress(self, lease: Lease, percent: float | None, note: str | None) -> Verdict:  # noqa: D102
        return await self._runner.once(lambda: leases.progress(lease, percent, note))

    async def extend(self, lease: Lease, duration: timedelta) -> Verdict:  # noqa: D102
        return await self._runner.once(lambda: leases.extend_one(lease, duration))

    async def verify(self, lease: Lease) -> Standing:  # noqa: D102
        return await self._runner.write(lambda: finishing.verify(lease))

    async def prune(self, retention: Retention, limit: int) -> int:  # noqa: D102
        return await self._runner.write(lambda: upkeep.prune(retention, limit))

    async def outstanding(self, tasks: Sequence[str], queues: Sequence[str] | None) -> Outstanding:  # noqa: D102
        return await self._runner.look(lambda: insight.outstanding(tasks, queues))

    async def result(self, job_id: str) -> str | None:  # noqa: D102
        return await self._runner.look(lambda: value("job_result", id=job_id))
