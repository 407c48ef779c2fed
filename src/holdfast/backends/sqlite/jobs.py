"""Jobs on SQLite: the shared verbs over rows, with an enqueue and a claim for SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypeVar

from holdfast.backends.sql.extender import SqlExtender
from holdfast.backends.sqlite.connection import Connection, Tx
from holdfast.backends.sqlite.execute import direct
from holdfast.backends.sqlite.job_rows import SqliteJobRows
from holdfast.backends.sqlite.location import SqliteLocation
from holdfast.backends.sqlite.runners import SessionRunner
from holdfast.backends.sqlite.verbs.claim import claim, look
from holdfast.backends.sqlite.verbs.enqueue import enqueue, enqueue_unique
from holdfast.backends.sqlite.verbs.extend import extend_many
from holdfast.backends.sqlite.versions import known_faults
from holdfast.model.job import NewJob
from holdfast.store.job_rows import JobRows
from holdfast.store.jobs_over_rows import JobsOverRows
from holdfast.store.steps import Ready, Runner, Verb
from holdfast.store.values import Claim, ClaimRequest, Enqueued
from holdfast.store.verbs.enqueue import Insert
from holdfast.store.verbs.rescue import ExpiredLook
from holdfast.store.verbs.unique import are_unique

T = TypeVar("T")


class SqliteJobs(JobsOverRows):
    """`JobStore` on SQLite."""

    def __init__(self, runner: Runner, rows: JobRows, ended: Callable[[], None] | None = None) -> None:
        super().__init__(runner, rows, ended)
        self._was_full = False

    async def enqueue_plain(self, jobs: Sequence[NewJob]) -> list[bool]:  # noqa: D102 - the port states the contracts
        return await self._runner.write(lambda: enqueue(jobs))

    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:  # noqa: D102
        if are_unique(jobs):
            return await self._runner.write(lambda: enqueue_unique(self._rows, jobs))
        return await super().enqueue(jobs)

    async def inserter(self, jobs: Sequence[NewJob]) -> Insert:  # noqa: ARG002, D102
        return enqueue

    async def claim(self, request: ClaimRequest) -> Claim:  # noqa: D102
        # A read first costs only a snapshot: an idle worker that polls must not take the write lock. After a
        # full claim there are probably more jobs, so a busy worker skips the read.
        if not self._was_full:
            nothing = await self._runner.look(lambda: look(request))
            if nothing is not None:
                return nothing
        claimed = await self._runner.write(lambda: claim(request))
        self._was_full = len(claimed.jobs) >= request.limit
        return claimed

    async def prepare_rescue(self, unbroken: timedelta | None) -> ExpiredLook:
        """Look at nothing: the rescue takes the write lock first, though rarely a lease has expired.

        Access to the store counts for a rescue only if the caller could write, because extending a lease is a write.
        """
        return ExpiredLook(found=True, access=unbroken)


def facts(location: SqliteLocation) -> Verb[dict[str, str]]:
    """Return the verb of `Insight.facts`."""

    def read(tx: Tx) -> dict[str, str]:
        settings = ("journal_mode", "synchronous", "page_count", "page_size")
        return {
            "now_us": str(tx.now),
            **{name: str(tx.pragma(name)) for name in settings},
            "version": sqlite3.sqlite_version,
            "known_faults": "; ".join(known_faults(sqlite3.sqlite_version_info)) or "none",
            "file": str(location.path or "in memory"),
        }

    return direct(read)


class SqliteExtender(SqlExtender):
    """`Extender` on SQLite: the extending thread's connection. It goes first in the write queue, and wakes no listener.

    `owns`: whether the connection is its own; an in-memory database has one for all users.
    """

    def __init__(self, connection: Connection, runner: SessionRunner, *, owns: bool) -> None:
        super().__init__(SqliteJobRows(), lambda leases, span: direct(lambda tx: extend_many(tx, leases, span))())
        self._connection = connection
        self._runner = runner
        self._owns = owns

    def write(self, verb: Verb[T], timeout: timedelta) -> T:  # noqa: ARG002 - the busy timeout applies
        """Run a verb under the write lock."""
        return self._runner.transact(self._connection, verb, Ready())

    def read(self, verb: Verb[T], timeout: timedelta) -> T:  # noqa: ARG002, D102
        return self._runner.snapshot(self._connection, verb)

    def close(self) -> None:  # noqa: D102
        if self._owns:
            self._connection.close()
