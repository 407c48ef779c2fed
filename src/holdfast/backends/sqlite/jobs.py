"""Jobs on SQLite: the shared verbs over rows, with an enqueue and a claim for SQLite."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from datetime import timedelta
from typing import TypeVar

import msgspec

from holdfast.backends.sql.streams import nodes
from holdfast.backends.sqlite.connection import Connection, Tx
from holdfast.backends.sqlite.execute import direct, drive
from holdfast.backends.sqlite.job_rows import SqliteJobRows
from holdfast.backends.sqlite.location import SqliteLocation
from holdfast.backends.sqlite.verbs import claim as claiming
from holdfast.backends.sqlite.verbs.enqueue import enqueue
from holdfast.backends.sqlite.verbs.extend import extend_many
from holdfast.backends.sqlite.versions import known_faults
from holdfast.backends.sqlite.write_queue import WriteQueue
from holdfast.model.allocation import NodeKey, Timing
from holdfast.model.job import Lease, NewJob
from holdfast.store.jobs_over_rows import InsightOverRows, JobsOverRows
from holdfast.store.steps import Ready, Runner, Verb
from holdfast.store.stream_values import OwnedShares
from holdfast.store.values import Claim, ClaimRequest, Extension, WorkerHeartbeat
from holdfast.store.verbs.job_views import cancel_asked
from holdfast.store.verbs.maintenance import heartbeat

T = TypeVar("T")


class SqliteJobs(JobsOverRows):
    """`JobStore` on SQLite."""

    def __init__(self, runner: Runner, rows: SqliteJobRows) -> None:
        super().__init__(runner, rows)
        self._was_full = False

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[bool]:  # noqa: D102 - the port states the contracts
        return await self._runner.write(lambda: enqueue(jobs))

    async def claim(self, request: ClaimRequest) -> Claim:  # noqa: D102
        # A read first costs only a snapshot: an idle worker that polls must not take the write lock in vain. After a
        # full claim there are probably more jobs, so a busy worker skips the read.
        if not self._was_full and not await self._runner.look(direct(lambda tx: claiming.claimable(tx, request))):
            return Claim([])
        claim = await self._runner.write(direct(lambda tx: claiming.claim(tx, request)))
        self._was_full = len(claim.jobs) >= request.limit
        return claim

    async def prepare_rescue(self, unbroken: timedelta | None) -> bool:  # noqa: ARG002
        """Return True without a read: the rescue takes the write lock first, though rarely a lease has expired.

        Access to the store counts for a rescue only if the caller could write, because extending a lease is a write.
        """
        return True


class SqliteInsight(InsightOverRows):
    """`Insight` on SQLite."""

    def __init__(self, runner: Runner, rows: SqliteJobRows, location: SqliteLocation) -> None:
        super().__init__(runner, rows)
        self._location = location

    async def facts(self) -> dict[str, str]:  # noqa: D102
        def look(tx: Tx) -> dict[str, str]:
            settings = ("journal_mode", "synchronous", "page_count", "page_size")
            return {"now_us": str(tx.now)} | {name: str(tx.pragma(name)) for name in settings}

        facts = await self._runner.look(direct(look))
        facts["version"] = sqlite3.sqlite_version
        facts["known_faults"] = "; ".join(known_faults(sqlite3.sqlite_version_info)) or "none"
        facts["file"] = str(self._location.path or "in memory")
        return facts


class SqliteExtender:
    """`Extender` on SQLite: the extending thread's connection, which goes first in the write queue."""

    def __init__(
        self,
        connection: Connection,
        gate: WriteQueue,
        *,
        owns: bool,
        without_waking: Callable[[Connection], AbstractContextManager[None]],
    ) -> None:
        self._connection = connection
        self._gate = gate
        self._owns = owns
        self._rows = SqliteJobRows()
        self._without_waking = without_waking

    def _write(self, verb: Verb[T]) -> T:
        with self._gate.passage(first=True), self._connection.write() as tx:
            return drive(tx, verb(), Ready())

    def extend(self, leases: Sequence[Lease], duration: timedelta) -> Extension:  # noqa: D102
        return self._write(direct(lambda tx: extend_many(tx, leases, duration)))

    def _read(self, verb: Verb[T]) -> T:
        if not self._owns:  # an in-memory database has one connection for all users
            return self._write(verb)
        with self._connection.read() as tx:
            return drive(tx, verb(), Ready())

    def cancel_asked(self, worker_id: str) -> list[Lease]:  # noqa: D102
        return self._read(lambda: cancel_asked(self._rows, worker_id))

    def heartbeat(self, worker: WorkerHeartbeat) -> None:  # noqa: D102
        self._write(lambda: heartbeat(self._rows, worker))

    def node_heartbeat(self, node: NodeKey, timing: Timing) -> OwnedShares:  # noqa: D102
        sent = time.monotonic()

        with self._gate.passage(first=True), ExitStack() as after, self._connection.write() as tx:
            after.enter_context(self._without_waking(self._connection))  # a heartbeat must not wake its own node
            waited = timedelta(seconds=time.monotonic() - sent)
            return msgspec.structs.replace(drive(tx, nodes.heartbeat(node, timing), Ready()), waited=waited)

    def owned(self, node: NodeKey) -> OwnedShares:  # noqa: D102
        return self._read(lambda: nodes.owned(node))

    def close(self) -> None:  # noqa: D102
        if self._owns:
            self._connection.close()
