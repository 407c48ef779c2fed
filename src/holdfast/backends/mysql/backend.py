"""An open store: its connections, its components and the facts about its server.

```text
   event loop        ──▶ pool for verbs, one per loop ────────┐
   async handlers    ──▶ pool for their transactions ─────────┤
   threaded handlers ──▶ pool for their transactions ─────────┼──▶ the server
   extending thread  ──▶ a separate connection ───────────────┤
   notifier          ──▶ a connection that looks for changes ─┘
```
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from holdfast.backends.mysql.extender import MysqlExtender
from holdfast.backends.mysql.handler_transaction import MysqlAsyncTransaction, MysqlBlockingTransaction
from holdfast.backends.mysql.job_rows import MysqlJobRows
from holdfast.backends.mysql.jobs import MysqlInsight, MysqlJobs, add_lanes, facts
from holdfast.backends.mysql.location import MysqlLocation
from holdfast.backends.mysql.notifier import MysqlNotifier
from holdfast.backends.mysql.pool import ask_beside, beside_pool, blocking_pool, pools_for_handlers, pools_for_verbs
from holdfast.backends.mysql.runners import MysqlPoolRunner
from holdfast.backends.mysql.schema import MysqlSchema
from holdfast.backends.mysql.statements import MysqlStatements
from holdfast.backends.mysql.streams import MysqlAllocations, MysqlConsumers, MysqlEvents, lock_share
from holdfast.backends.mysql.using.callers import MysqlCallers
from holdfast.backends.sql.category_cache import Categories
from holdfast.backends.sql.fenced_verbs import fenced_verbs
from holdfast.backends.sql.lane_cache import Lanes
from holdfast.backends.sql.record_rows import SqlRecordRows
from holdfast.backends.sql.schedule_rows import SqlScheduleRows
from holdfast.backends.sql.server_parts import ServerParts
from holdfast.backends.sql.server_transaction import ServerTransactions, TransactionPlace
from holdfast.backends.sql.streams.foreign import SqlForeignEvents
from holdfast.model.steady_clock import Steady
from holdfast.store.backend_over_parts import BackendOverParts, StreamParts
from holdfast.store.capabilities import Capabilities
from holdfast.store.claim_floor import Floors
from holdfast.store.jobs_over_rows import QueuesOverRows
from holdfast.store.record_rows import RecordsOverRows
from holdfast.store.schedules_over_rows import SchedulesOverRows
from holdfast.store.steps import Runner


class MysqlParts(ServerParts):
    """The open connections of one process."""

    def __init__(self, location: MysqlLocation, statements: MysqlStatements) -> None:
        self.owner = statements
        pools = pools_for_verbs(location), pools_for_handlers(location), blocking_pool(location)
        beside = beside_pool(location)
        self._pools = *pools, beside
        self.runner = MysqlPoolRunner(pools[0], statements, location, self._became_ready, self._drop_idle)
        notifier = MysqlNotifier(location, statements)
        self.notifier = self._notifier = notifier
        self._suspect = notifier.suspect
        self.rows = MysqlJobRows(Steady() if statements.is_server_clock else None)
        verbs = fenced_verbs(self.rows)._replace(lock_share=lock_share)
        look = partial(ask_beside, beside, location.url)
        place = TransactionPlace(
            statements, verbs, location.url, location.reply_timeout, self._drop_idle, self._became_ready, look
        )
        kinds = MysqlAsyncTransaction, MysqlBlockingTransaction
        self.transactions = ServerTransactions(*pools[1:], place, *kinds)
        self._floors = Floors()
        self.callers = callers = MysqlCallers(location, statements, look)
        self._lanes = Lanes(self.runner, add_lanes)
        self.jobs = self.jobs_over(self.runner, notifier.notify_ends)
        self.queues = QueuesOverRows(self.runner, self.rows)
        notify = partial(self.runner.after_commit, notifier.notify)
        self.records = RecordsOverRows(self.runner, SqlRecordRows())
        self.schedules = SchedulesOverRows(self.runner, SqlScheduleRows(), self.jobs.inserter, notify)
        self.insight = MysqlInsight(self.runner, self.rows, facts)
        self.schema = MysqlSchema(self.runner, location)
        events_over = partial(MysqlEvents, categories=Categories(self.runner))
        self.streams = StreamParts(
            events_over(self.runner, appended=notify),
            MysqlConsumers(self.runner, self.transactions),
            MysqlAllocations(self.runner),
            SqlForeignEvents(self.runner),
            joined=lambda using: events_over(callers.runner(using)),
        )

    def _drop_idle(self) -> None:
        super()._drop_idle()
        self._suspect()

    def jobs_over(self, runner: Runner, ended: Callable[[], None] | None = None) -> MysqlJobs:  # noqa: D102
        return MysqlJobs(runner, self.rows, lanes=self._lanes, floors=self._floors, ended=ended)


class MysqlBackend(BackendOverParts[MysqlParts]):
    """`Backend` on MySQL and MariaDB, and `Transactions` with it."""

    def __init__(self, location: MysqlLocation, clock: Callable[[], int] | None) -> None:
        self._location = location
        self._statements = MysqlStatements(clock)
        super().__init__(location.url, location.full_url, lambda: MysqlParts(location, self._statements))
        self._facts: dict[str, str] = {}

    @property
    def capabilities(self) -> Capabilities:  # noqa: D102 - the port states the contracts
        version = self._facts.get("version", "not yet connected")
        return Capabilities(
            store="mariadb" if "mariadb" in version.lower() else "mysql",
            version=version,
            durability=_durability(self._facts),
            notifies=True,
            joins_transactions=True,
            repeat_shows_outcome=True,
            shared=True,
        )

    async def open(self, *, install: bool = True) -> None:  # noqa: D102
        await super().open(install=install)
        self._facts = await self.insight.facts()

    def extender(self) -> MysqlExtender:  # noqa: D102
        return MysqlExtender(self._location, self._statements)


def _durability(facts: dict[str, str]) -> str:
    if not facts:
        return "unknown: the store is not open"
    if facts["innodb_flush_log_at_trx_commit"] != "1":
        number = facts["innodb_flush_log_at_trx_commit"]
        return f"a crash may lose the last acknowledged commits (innodb_flush_log_at_trx_commit={number})"
    if facts["log_bin"] == "1" and facts["sync_binlog"] != "1":
        number = facts["sync_binlog"]  # recovery rolls back what the binary log does not contain
        return f"a crash of the machine may lose the last acknowledged commits (sync_binlog={number})"
    return "every commit is flushed before it is acknowledged (innodb_flush_log_at_trx_commit=1)"


def open_backend(url: str, *, clock: Callable[[], int] | None = None) -> MysqlBackend:
    """Return the unopened backend behind a `mysql:` or `mariadb:` URL."""
    return MysqlBackend(MysqlLocation.parse(url), clock)
