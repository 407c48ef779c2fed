"""The Redis backend, and the connections of each of its users.

```text
   event loops       ──▶ a pool of connections each    ──▶ scripts
   extending thread  ──▶ its own connection            ──▶ scripts
   watcher           ──▶ SUBSCRIBE
   notifications     ──▶ a connection for PUBLISH
```
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from holdfast.backends.redis.extender import RedisExtender
from holdfast.backends.redis.handler_transaction import NO_TRANSACTIONS, NoCallers, RedisPlace, RedisTransactions
from holdfast.backends.redis.job_rows import RedisJobRows
from holdfast.backends.redis.jobs import CHANGES_INSIDE, NO_CHANGES_INSIDE, RedisJobs
from holdfast.backends.redis.lane_directory import LaneDirectory
from holdfast.backends.redis.location import RedisLocation
from holdfast.backends.redis.notifier import RedisNotifier
from holdfast.backends.redis.record_rows import RedisRecordRows
from holdfast.backends.redis.runners import RedisRunner
from holdfast.backends.redis.schedule_rows import RedisScheduleRows
from holdfast.backends.redis.schema import RedisSchema
from holdfast.backends.redis.server_facts import ask_server
from holdfast.backends.redis.steps import read
from holdfast.backends.redis.wire import AsyncWire, BlockingWire, Server
from holdfast.errors import Unsupported
from holdfast.model.steady_clock import Steady
from holdfast.store.backend_over_parts import BackendOverParts, StoreParts
from holdfast.store.capabilities import STREAMS, Capabilities
from holdfast.store.jobs_over_rows import InsightOverRows, QueuesOverRows
from holdfast.store.record_rows import RecordsOverRows
from holdfast.store.schedules_over_rows import SchedulesOverRows
from holdfast.store.steps import Runner, Steps
from holdfast.store.streams import Streams

NO_STREAMS = (
    "Redis keeps data in memory, which does not suit a long-lived event log; keep events in a SQL store next to it, "
    'in a separate app: App("postgresql://…"), or in Kafka next to that: App("postgresql://…", events="kafka://…")'
)

_UNKNOWN = "what the server is set to; it is known when the store is open"


def _no_streams() -> NoReturn:
    raise Unsupported(f"redis cannot {STREAMS}: {NO_STREAMS}")


class RedisInsight(InsightOverRows):
    """`Insight`, with the facts of the server."""

    def __init__(self, runner: Runner, rows: RedisJobRows, wire: AsyncWire, location: RedisLocation) -> None:
        super().__init__(runner, rows, _no_facts)
        self._wire = wire
        self._location = location

    async def facts(self) -> dict[str, str]:  # noqa: D102
        now, (size,) = await self._runner.look(lambda: read(("GET", "bytes")))
        report = await ask_server(self._wire)
        return {"now_us": str(now), "completed_bytes": str(int(size or 0)), **report.facts(self._location)}


def _no_facts() -> Steps[dict[str, str]]:
    yield from ()
    return {}


class RedisParts(StoreParts):
    """The connections of one process."""

    def __init__(self, location: RedisLocation, clock: Callable[[], int] | None) -> None:
        self.server = self.owner = Server(location, clock)
        self.wire = AsyncWire(self.server)
        self.notifier = self._notifier = notifier = RedisNotifier(self.server)
        directory = LaneDirectory(self.server)
        self.runner = RedisRunner(self.wire, directory, notifier.wake_here)
        self.rows = self._rows = rows = RedisJobRows(
            directory, Steady() if clock is None else None, location.completed_bytes
        )
        self.jobs = RedisJobs(self.runner, rows, notifier.notify_ends)
        self.queues = QueuesOverRows(self.runner, rows)
        self.records = RecordsOverRows(self.runner, RedisRecordRows())
        self.schedules = SchedulesOverRows(self.runner, RedisScheduleRows(), self.jobs.inserter, notifier.notify)
        self.insight = RedisInsight(self.runner, rows, self.wire, location)
        self.schema = self.described = RedisSchema(self.wire, location)
        place = RedisPlace(location, self.server, self.runner, rows, notifier.wake_here)
        self.transactions = self._transactions = RedisTransactions(place)
        self.callers = NoCallers()

    @property
    def streams(self) -> Streams:  # type: ignore[override]
        """Refuse: there are none."""
        _no_streams()

    def jobs_over(self, runner: Runner) -> RedisJobs:  # noqa: D102
        return RedisJobs(runner, self._rows)

    def extender(self) -> RedisExtender:
        """Open the extending thread's connection."""
        return RedisExtender(BlockingWire(self.server), self._rows, _no_streams)

    async def close(self) -> None:
        """Close everything."""
        self._notifier.close()
        self._transactions.close()
        self.wire.pools.close()
        await self._notifier.ended(within=2.0)


class RedisBackend(BackendOverParts[RedisParts]):
    """`Backend` on Redis and Valkey."""

    def __init__(self, location: RedisLocation, clock: Callable[[], int] | None) -> None:
        super().__init__(location.url, location.full_url, lambda: RedisParts(location, clock))
        self._location = location

    @property
    def capabilities(self) -> Capabilities:  # noqa: D102 - the port states the contracts
        report = self._parts.here.described.report
        return Capabilities(
            store="redis",
            version=f"{report.kind} {report.version}" if report.info else "unknown before it is opened",
            durability=report.persistence.described(self._location) if report.info else _UNKNOWN,
            notifies=True,
            joins_transactions=False,
            queues_effects=True,
            shared=True,
            repeat_shows_outcome=True,
            refusals={
                STREAMS: NO_STREAMS,
                "join transactions": NO_TRANSACTIONS,
                CHANGES_INSIDE: NO_CHANGES_INSIDE,
            },
        )

    def extender(self) -> RedisExtender:  # noqa: D102
        return self._parts.here.extender()


def open_backend(url: str, *, clock: Callable[[], int] | None = None) -> RedisBackend:
    """Return the backend of a URL, not yet opened."""
    return RedisBackend(RedisLocation.parse(url), clock)
