"""The port's read-only side, and queues, on SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import timedelta

from holdfast.backends.sqlite.connection import Tx
from holdfast.backends.sqlite.execute import direct
from holdfast.backends.sqlite.location import SqliteLocation
from holdfast.backends.sqlite.verbs import insight, operate
from holdfast.backends.sqlite.versions import known_faults
from holdfast.store.steps import Runner
from holdfast.store.values import (
    Count,
    JobDetails,
    JobFilter,
    JobPage,
    LeaseView,
    QueueView,
    WorkerView,
)


class SqliteQueues:
    """`QueueStore` on SQLite."""

    def __init__(self, runner: Runner, notify: Callable[[], None]) -> None:
        self._runner = runner
        self._notify = notify

    async def pause(self, queue: str) -> bool:  # noqa: D102 - the port states the contracts
        return await self._runner.write(direct(lambda tx: operate.pause(tx, queue)))

    async def resume(self, queue: str) -> bool:  # noqa: D102
        done = await self._runner.write(direct(lambda tx: operate.resume(tx, queue)))
        self._notify()
        return done


class SqliteInsight:
    """`Insight` on SQLite."""

    def __init__(self, runner: Runner, location: SqliteLocation) -> None:
        self._runner = runner
        self._location = location

    async def job(self, job_id: str) -> JobDetails:  # noqa: D102
        return await self._runner.read(direct(lambda tx: insight.job(tx, job_id)))

    async def find(self, prefix: str, limit: int) -> list[str]:  # noqa: D102
        return await self._runner.read(direct(lambda tx: insight.find_ids(tx, prefix, limit)))

    async def jobs(self, selection: JobFilter) -> JobPage:  # noqa: D102
        return await self._runner.read(direct(lambda tx: insight.jobs(tx, selection)))

    async def queues(self) -> list[QueueView]:  # noqa: D102
        return await self._runner.read(direct(insight.queues))

    async def leases(self, limit: int, *, expired_only: bool = False) -> list[LeaseView]:  # noqa: D102
        return await self._runner.read(direct(lambda tx: insight.leases(tx, limit, expired_only=expired_only)))

    async def workers(self) -> list[WorkerView]:  # noqa: D102
        return await self._runner.read(direct(insight.workers))

    async def counts(self, since: timedelta) -> list[Count]:  # noqa: D102
        return await self._runner.read(direct(lambda tx: insight.counts(tx, since)))

    async def facts(self) -> dict[str, str]:  # noqa: D102
        def look(tx: Tx) -> dict[str, str]:
            settings = ("journal_mode", "synchronous", "page_count", "page_size")
            return {"now_us": str(tx.now)} | {name: str(tx.pragma(name)) for name in settings}

        facts = await self._runner.read(direct(look))
        facts["version"] = sqlite3.sqlite_version
        facts["known_faults"] = "; ".join(known_faults(sqlite3.sqlite_version_info)) or "none"
        facts["file"] = str(self._location.path or "in memory")
        return facts
