"""Jobs: the shared contract over rows, with this store's enqueue, claim and completion."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from holdfast.backends.mysql.error_map import DriverError, is_refused
from holdfast.backends.mysql.verbs import claim as claiming
from holdfast.backends.mysql.verbs import enqueue as enqueuing
from holdfast.backends.mysql.verbs.finish import complete_plainly, is_plain
from holdfast.backends.sql.floor_claims import JobsWithFloors
from holdfast.backends.sql.pool_runner import runs_alone
from holdfast.backends.sql.steps import Rows, each, rows, value
from holdfast.errors import PrivilegeMissing
from holdfast.model.job import NewJob
from holdfast.store.claim_floor import Place
from holdfast.store.jobs_over_rows import InsightOverRows
from holdfast.store.steps import LockedTooLong, Steps
from holdfast.store.values import Claim, ClaimRequest, Finish, Verdict
from holdfast.store.verbs.enqueue import Insert


def add_lanes(queues: Sequence[str], tasks: Sequence[str]) -> Steps[Rows]:
    """Insert missing lanes; return all of them."""
    wanted = set(zip(queues, tasks, strict=True))
    found = yield from rows("find_lanes", queues=sorted(set(queues)), tasks=sorted(set(tasks)))
    missing = sorted(wanted - {(queue, task) for _, queue, task in found})
    if missing:
        yield from each("add_queue", [{"queue": queue} for queue in sorted({queue for queue, _ in missing})])
        yield from each("add_lane", [{"queue": queue, "task": task} for queue, task in missing])
        found = yield from rows("find_lanes", queues=sorted(set(queues)), tasks=sorted(set(tasks)))
    return found


class MysqlJobs(JobsWithFloors):
    """`JobStore` on MySQL and MariaDB."""

    @cached_property
    def _guesses(self) -> dict[tuple[object, object], claiming.Lane]:
        """The only lane that the last claim of each scope has found."""
        return {}

    async def enqueue_plain(self, jobs: Sequence[NewJob]) -> list[bool]:  # noqa: D102 - the port states the contracts
        if not jobs:
            return []
        lanes = await self._lanes.of(jobs)
        is_alone = runs_alone(self._runner)
        return await self._runner.write(lambda: enqueuing.insert(jobs, lanes, is_alone=is_alone, is_whole=is_alone))

    async def inserter(self, jobs: Sequence[NewJob]) -> Insert:  # noqa: D102
        lanes, is_alone = await self._lanes.of(jobs), runs_alone(self._runner)

        def insert(some: Sequence[NewJob]) -> Steps[list[bool]]:
            return enqueuing.insert(some, lanes, is_alone=is_alone, is_whole=False)

        return insert

    async def take(self, request: ClaimRequest, floors: dict[int, Place]) -> claiming.TakenFront:
        """Claim as from the only lane, if the previous claim of this scope has found a single one."""
        scope = (request.tasks, request.queues)
        guess = self._guesses.pop(scope, None)
        taken = await self._runner.write(lambda: claiming.claim(request, floors, guessed=guess))
        if taken.claim.jobs and len(taken.lanes) == 1:
            self._guesses[scope] = taken.lanes[0]
        return taken

    def take_limited(self, request: ClaimRequest) -> Steps[Claim]:  # noqa: D102
        return claiming.claim_limited(request)

    async def finish(self, finishes: Sequence[Finish], *, briefly: bool = False) -> list[Verdict]:
        """Complete a batch without followed jobs and results in one trip; other batches use the shared code."""
        if finishes and is_plain(finishes) and runs_alone(self._runner):
            write = self._runner.write_briefly if briefly else self._runner.write
            try:
                await write(lambda: complete_plainly(finishes))
            except DriverError as error:
                if not is_refused(error):
                    raise
            except LockedTooLong:
                if not briefly:
                    raise
                return await self._finish_reachable(finishes)
            else:
                self._ended()
                return [Verdict.DONE] * len(finishes)
        return await super().finish(finishes, briefly=briefly)


class MysqlInsight(InsightOverRows):
    """`Insight` on MySQL and MariaDB."""

    async def facts(self) -> dict[str, str]:
        """Return the facts of the server, with the age of its oldest transaction if the user may see it."""
        found = await super().facts()
        for _, level in await self._runner.look(lambda: rows("default_isolation")):
            found["default_transaction_isolation"] = str(level)
        try:
            seconds = str(await self._runner.look(lambda: value("oldest_transaction")))
        except PrivilegeMissing:
            seconds = "unknown: grant process on *.* to the user"
        return {**found, "oldest_transaction": seconds}


def facts() -> Steps[dict[str, str]]:
    """Return the facts of the server: the verb of `Insight.facts`."""
    return {name: str(fact) for name, fact in (yield from rows("server_facts"))}
