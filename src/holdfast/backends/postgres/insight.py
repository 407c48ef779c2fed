"""The port's read-only side, and queues, on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from holdfast.backends.postgres.runners import PoolRunner
from holdfast.backends.postgres.verbs import insight
from holdfast.backends.sql.steps import row, run
from holdfast.store.values import Count, JobDetails, JobFilter, JobPage, LeaseView, QueueView, WorkerView


class PostgresQueues:
    """`QueueStore` on PostgreSQL."""

    def __init__(self, runner: PoolRunner, notify: Callable[[], None]) -> None:
        self._runner = runner
        self._notify = notify

    async def pause(self, queue: str) -> bool:  # noqa: D102 - the port states the contracts
        return await self._runner.once(lambda: run("pause", queue=queue))

    async def resume(self, queue: str) -> bool:  # noqa: D102
        done = await self._runner.once(lambda: run("resume", queue=queue))
        self._notify()
        return done


class PostgresInsight:
    """`Insight` on PostgreSQL."""

    def __init__(self, runner: PoolRunner, schema: str) -> None:
        self._runner = runner
        self._schema = schema

    async def job(self, job_id: str) -> JobDetails:  # noqa: D102
        return await self._runner.read(lambda: insight.job(job_id))

    async def find(self, prefix: str, limit: int) -> list[str]:  # noqa: D102
        return await self._runner.look(lambda: insight.find_ids(prefix, limit))

    async def jobs(self, selection: JobFilter) -> JobPage:  # noqa: D102
        return await self._runner.look(lambda: insight.jobs(selection))

    async def queues(self) -> list[QueueView]:  # noqa: D102
        return await self._runner.look(insight.queues)

    async def leases(self, limit: int, *, expired_only: bool = False) -> list[LeaseView]:  # noqa: D102
        return await self._runner.look(lambda: insight.leases(limit, expired_only=expired_only))

    async def workers(self) -> list[WorkerView]:  # noqa: D102
        return await self._runner.look(insight.workers)

    async def counts(self, since: timedelta) -> list[Count]:  # noqa: D102
        return await self._runner.look(lambda: insight.counts(since))

    async def facts(self) -> dict[str, str]:  # noqa: D102
        found = await self._runner.look(lambda: row("server_facts", schema=self._schema))
        names = (
            "version",
            "synchronous_commit",
            "fsync",
            "max_connections",
            "default_transaction_isolation",
            "size",
            "oldest_snapshot_age",
            "now_us",
        )
        return {**dict(zip(names, map(str, found), strict=True)), "schema": self._schema}
