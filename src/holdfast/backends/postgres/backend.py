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

from collections.abc import Callable
from functools import partial

from holdfast.backends.postgres.blockers import Blockers
from holdfast.backends.postgres.extender import PostgresExtender
from holdfast.backends.postgres.handler_transaction import PostgresAsyncTransaction, PostgresBlockingTransaction
from holdfast.backends.postgres.job_rows import PostgresJobRows
from holdfast.backends.postgres.jobs import PostgresJobs, facts
from holdfast.backends.postgres.location import PostgresLocation
from holdfast.backends.postgres.notifier import PostgresNotifier
from holdfast.backends.postgres.pool import blocking_pool, pools_for_handlers, pools_for_verbs
from holdfast.backends.postgres.runners import PoolRunner
from holdfast.backends.postgres.schema import PostgresSchema
from holdfast.backends.postgres.statements import Statements
from holdfast.backends.postgres.streams import PostgresAllocations, PostgresEvents
from holdfast.backends.postgres.using.callers import PostgresCallers
from holdfast.backends.postgres.verbs.enqueue import add_lanes
from holdfast.backends.postgres.verbs.fetch import fetch
from holdfast.backends.postgres.verbs.lease_locks import lock_jobs
from holdfast.backends.sql.category_cache import Categories
from holdfast.backends.sql.fenced_verbs import fenced_verbs
from holdfast.backends.sql.lane_cache import Lanes
from holdfast.backends.sql.record_rows import SqlRecordRows
from holdfast.backends.sql.schedule_rows import SqlScheduleRows
from holdfast.backends.sql.server_parts import ServerParts
from holdfast.backends.sql.server_transaction import ServerTransactions, TransactionPlace
from holdfast.backends.sql.streams.consumer_store import SqlConsumers
from holdfast.backends.sql.streams.foreign import SqlForeignEvents
from holdfast.model.steady_clock import Steady
from holdfast.store.backend_over_parts import BackendOverParts, StreamParts
from holdfast.store.capabilities import Capabilities
from holdfast.store.claim_floor import Floors
from holdfast.store.jobs_over_rows import InsightOverRows, QueuesOverRows
from holdfast.store.record_rows import RecordsOverRows
from holdfast.store.schedules_over_rows import SchedulesOverRows
from holdfast.store.steps import Runner


class PostgresParts(ServerParts):
    """The open connections of one process."""

    def __init__(self, location: PostgresLocation, statements: Statements) -> None:
        self.owner = statements
        self._pools = pools_for_verbs(location), pools_for_handlers(location), blocking_pool(location)
        self.runner = PoolRunner(self._pools[0], statements, location, self._became_ready)
        self.notifier = self._notifier = PostgresNotifier(location)
        self.rows = PostgresJobRows(Steady() if statements.is_server_clock else None)
        verbs = fenced_verbs(self.rows)._replace(lock_jobs=lock_jobs)
        place = TransactionPlace(
            statements, verbs, location.url, location.reply_timeout, self._drop_idle, self._became_ready
        )
        kinds = PostgresAsyncTransaction, PostgresBlockingTransaction
        self.transactions = ServerTransactions(*self._pools[1:], place, *kinds)
        self._floors = Floors()
        self.callers = callers = PostgresCallers(location, statements)
        self.blockers = Blockers(self.runner)
        self._lanes = Lanes(self.runner, add_lanes)
        self.jobs = self.jobs_over(self.runner, self._notifier.notify_ends)
        self.queues = QueuesOverRows(self.runner, self.rows)
        self.records = RecordsOverRows(self.runner, SqlRecordRows())
        self.schedules = SchedulesOverRows(
            self.runner,
            SqlScheduleRows(),
            self.jobs.inserter,
            lambda: self.runner.after_commit(self.notifier.notify),
        )
        self.insight = InsightOverRows(self.runner, self.rows, partial(facts, location.schema))
        self.schema = PostgresSchema(self.runner, location)
        events_over = partial(PostgresEvents, categories=Categories(self.runner))
        self.streams = StreamParts(
            events_over(self.runner, appended=lambda: self.runner.after_commit(self.notifier.notify)),
            SqlConsumers(self.runner, self.transactions, fetch),
            PostgresAllocations(self.runner, self.blockers),
            SqlForeignEvents(self.runner),
            joined=lambda using: events_over(callers.runner(using)),
        )

    def jobs_over(self, runner: Runner, ended: Callable[[], None] | None = None) -> PostgresJobs:  # noqa: D102
        lanes, floors, blockers = self._lanes, self._floors, self.blockers
        return PostgresJobs(runner, self.rows, lanes=lanes, floors=floors, blockers=blockers, ended=ended)


class PostgresBackend(BackendOverParts[PostgresParts]):
    """`Backend` on PostgreSQL, and `Transactions` with it."""

    def __init__(self, location: PostgresLocation, clock: Callable[[], int] | None) -> None:
        self._location = location
        self._statements = Statements(location.schema, clock)
        super().__init__(location.url, location.full_url, lambda: PostgresParts(location, self._statements))
        self.capabilities = _capabilities({})

    async def open(self, *, install: bool = True) -> None:  # noqa: D102
        await super().open(install=install)
        self.capabilities = _capabilities(await self.insight.facts())

    def extender(self) -> PostgresExtender:  # noqa: D102
        return PostgresExtender(self._location, self._statements)


def _capabilities(facts: dict[str, str]) -> Capabilities:
    return Capabilities(
        store="postgresql",
        version=facts.get("version", "not yet connected"),
        durability=_durability(facts),
        notifies=True,
        joins_transactions=True,
        repeat_shows_outcome=True,
        shared=True,
    )


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
