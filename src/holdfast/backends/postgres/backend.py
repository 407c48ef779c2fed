"""An open PostgreSQL store: its connections, its components and the facts about its server.

```text
   event loop        ──▶ pool for verbs, one per loop ────────┐
   async handlers    ──▶ pool for their transactions ─────────┤
   threaded handlers ──▶ pool for their transactions ─────────┼──▶ the server, or a transaction pooler in front of it
   extending thread  ──▶ a separate connection ───────────────┤
   notifier          ──▶ one connection sends, one listens ───┘
```
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import timedelta

from holdfast.backends.postgres.blockers import Blockers
from holdfast.backends.postgres.claim_floor import Floors
from holdfast.backends.postgres.extender import PostgresExtender
from holdfast.backends.postgres.fenced_verbs import FENCED
from holdfast.backends.postgres.handler_transaction import (
    PostgresAsyncTransaction,
    PostgresBlockingTransaction,
    PostgresPlace,
)
from holdfast.backends.postgres.job_rows import PostgresJobRows
from holdfast.backends.postgres.jobs import PostgresInsight, PostgresJobs
from holdfast.backends.postgres.lane_cache import Lanes
from holdfast.backends.postgres.location import PostgresLocation
from holdfast.backends.postgres.notifier import PostgresNotifier
from holdfast.backends.postgres.pool import blocking_pool, pools_for_handlers, pools_for_verbs
from holdfast.backends.postgres.runners import PoolRunner
from holdfast.backends.postgres.schema import PostgresSchema
from holdfast.backends.postgres.statements import Statements
from holdfast.backends.postgres.streams import PostgresStreams
from holdfast.backends.postgres.transactions import PostgresTransactions
from holdfast.backends.postgres.using import Callers
from holdfast.model.job import Lease
from holdfast.store.capabilities import Capabilities
from holdfast.store.jobs_over_rows import QueuesOverRows
from holdfast.store.steps import Place
from holdfast.store.values import Verdict
from holdfast.store.verbs.finish import complete

_inherited: list[_Parts] = []
_LAST_WAIT = 2.0  # seconds for threads whose server does not answer; they are daemons, and end by themselves later


class _Parts:
    """The open connections of one process. A forked child opens its own, and never uses or closes its parent's."""

    def __init__(self, location: PostgresLocation, statements: Statements) -> None:
        self.process = os.getpid()
        self._pools = pools_for_verbs(location)
        self._handlers = pools_for_handlers(location)
        self._blocking = blocking_pool(location)
        self.runner = PoolRunner(self._pools, statements, location, self._became_ready)
        self.notifier = PostgresNotifier(location)
        place = PostgresPlace(
            statements, FENCED, location.url, location.reply_timeout, self._drop_idle, self._became_ready
        )
        self.transactions = PostgresTransactions(self._handlers, self._blocking, place)
        self.lanes = Lanes(self.runner)
        self.floors = Floors()
        self.callers = Callers(location, statements)
        self.blockers = Blockers(self.runner)
        self.rows = PostgresJobRows()
        self.jobs = PostgresJobs(
            self.runner,
            self.rows,
            lanes=self.lanes,
            floors=self.floors,
            blockers=self.blockers,
            may_copy=lambda: not self.runner.joins,
        )
        self.streams = PostgresStreams(
            self.runner,
            self.transactions,
            blockers=self.blockers,
            notify=self.notifier.notify,
            callers=self.callers.runner,
        )

    def _became_ready(self, places: Sequence[Place]) -> None:
        """Lower the claim floors to these places, and notify waiting workers."""
        self.floors.lower(places)
        self.notifier.notify()

    def _drop_idle(self) -> None:
        for pool in (self._pools, self._handlers, self._blocking):
            pool.drop_idle()

    async def close(self) -> None:
        """Close everything."""
        self.notifier.close()
        for pool in (self._pools, self._handlers, self._blocking):
            pool.close()
        await self.notifier.ended(_LAST_WAIT)


class PostgresBackend:
    """`Backend` on PostgreSQL, and `Transactions` with it."""

    def __init__(self, location: PostgresLocation, clock: Callable[[], int] | None) -> None:
        self._location = location
        self._statements = Statements(location.schema, clock)
        self._of_this_process: _Parts | None = None
        self._facts: dict[str, str] = {}

    @property
    def _parts(self) -> _Parts:
        parts = self._of_this_process
        if parts is None or parts.process != os.getpid():
            if parts is not None:
                _inherited.append(parts)
            parts = self._of_this_process = _Parts(self._location, self._statements)
        return parts

    @property
    def url(self) -> str:  # noqa: D102 - the port states the contracts
        return self._location.url

    @property
    def full_url(self) -> str:  # noqa: D102
        return self._location.full_url

    @property
    def file(self) -> None:  # noqa: D102
        return None

    @property
    def capabilities(self) -> Capabilities:  # noqa: D102
        return Capabilities(
            store="postgresql",
            version=self._facts.get("version", "not yet connected"),
            durability=_durability(self._facts),
            notifies=True,
            joins_transactions=True,
            repeats_tell=True,
            shared=True,
        )

    @property
    def jobs(self) -> PostgresJobs:  # noqa: D102
        return self._parts.jobs

    @property
    def streams(self) -> PostgresStreams:  # noqa: D102
        return self._parts.streams

    @property
    def queues(self) -> QueuesOverRows:  # noqa: D102
        return QueuesOverRows(self._parts.runner, self._parts.rows)

    @property
    def insight(self) -> PostgresInsight:  # noqa: D102
        return PostgresInsight(self._parts.runner, self._parts.rows, self._location.schema)

    @property
    def schema(self) -> PostgresSchema:  # noqa: D102
        return PostgresSchema(self._parts.runner, self._location)

    @property
    def notifier(self) -> PostgresNotifier:  # noqa: D102
        return self._parts.notifier

    @property
    def transactions(self) -> PostgresBackend:  # noqa: D102
        return self

    async def open(self) -> None:  # noqa: D102
        await self.schema.open()
        self._facts = await self.insight.facts()

    async def close(self) -> None:  # noqa: D102
        parts, self._of_this_process = self._of_this_process, None
        if parts is None:
            return
        if parts.process == os.getpid():
            await parts.close()
        else:
            _inherited.append(parts)

    def extender(self) -> PostgresExtender:  # noqa: D102
        return PostgresExtender(self._location, self._statements)

    def begin(self, lease: Lease, *, limit: timedelta) -> AbstractAsyncContextManager[PostgresAsyncTransaction]:  # noqa: D102
        return self._parts.transactions.begin(lease, limit=limit)

    def begin_blocking(self, lease: Lease, *, limit: timedelta) -> AbstractContextManager[PostgresBlockingTransaction]:  # noqa: D102
        return self._parts.transactions.begin_blocking(lease, limit=limit)

    def is_inside(self) -> bool:  # noqa: D102
        return self._parts.runner.joins

    def join(self, using: object) -> PostgresJobs:  # noqa: D102
        parts = self._parts
        return PostgresJobs(
            parts.callers.runner(using), parts.rows, lanes=parts.lanes, floors=parts.floors, blockers=parts.blockers
        )

    def complete(self, lease: Lease, result: str | None, *, using: object) -> Verdict:  # noqa: D102
        return self._parts.callers.run_blocking(using, complete(self._parts.rows, lease, result))


def _durability(facts: dict[str, str]) -> str:
    if not facts:
        return "unknown: the store is not open"
    if facts["fsync"] != "on":
        return "a crash of the server's machine may lose everything (fsync is off)"
    if facts["synchronous_commit"] == "off":
        return "a crash may lose the last acknowledged commits (synchronous_commit is off)"
    return f"every commit is flushed before it is acknowledged (synchronous_commit={facts['synchronous_commit']})"


def open_backend(url: str, *, clock: Callable[[], int] | None = None) -> PostgresBackend:
    """Return the unopened backend behind a `postgresql:` URL."""
    return PostgresBackend(PostgresLocation.parse(url), clock)
