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
from typing import NoReturn, TypeVar

from holdfast.backends.redis.directory import Directory
from holdfast.backends.redis.extender import RedisExtender
from holdfast.backends.redis.job_rows import LIMITS_PER_KEY, NO_LIMITS_PER_KEY, RedisJobRows
from holdfast.backends.redis.jobs import RedisJobs
from holdfast.backends.redis.location import RedisLocation
from holdfast.backends.redis.notifier import RedisNotifier
from holdfast.backends.redis.runner import RedisRunner
from holdfast.backends.redis.schedule_rows import RedisScheduleRows
from holdfast.backends.redis.schema import RedisSchema, kind_of, server_info
from holdfast.backends.redis.steps import read
from holdfast.backends.redis.wire import AsyncWire, BlockingWire, Server
from holdfast.errors import Unsupported
from holdfast.model.steady_clock import Steady
from holdfast.store.backend_over_parts import BackendOverParts, StoreParts
from holdfast.store.capabilities import STREAMS, Capabilities
from holdfast.store.fences import HandlersTransactions
from holdfast.store.jobs_over_rows import InsightOverRows, QueuesOverRows
from holdfast.store.schedules_over_rows import SchedulesOverRows
from holdfast.store.steps import Runner, Steps
from holdfast.store.streams import Streams

T = TypeVar("T")

NO_STREAMS = (
    "its memory is no place for a log that outlives its consumers; keep events in a SQL store next to it, in a "
    'separate app: App("postgresql://…")'
)
NO_TRANSACTIONS = (
    "a transaction of Redis neither reads nor undoes; write an effect that may be repeated, by the job's id"
)


_DURABILITY = {
    "1": "an append-only file: a crash of the machine may undo what came since its last sync (appendfsync)",
    "0": "none: without an append-only file, a crash of the server undoes what came since its last snapshot",
    "": "what the server is set to; it is known when the store is open",
}


def _no_streams() -> NoReturn:
    raise Unsupported(f"redis cannot {STREAMS}: {NO_STREAMS}")


def _no_transactions() -> NoReturn:
    raise Unsupported(f"redis cannot join transactions: {NO_TRANSACTIONS}")


class _NoTransactions(HandlersTransactions):
    """Refuses to open any."""

    def __init__(self) -> None:
        """There are no verbs for them."""

    def begin(self, *_: object, **__: object) -> NoReturn:
        """Refuse."""
        _no_transactions()

    begin_blocking = begin_many = begin_many_blocking = begin

    open = open_blocking = begin


class _NoCallers:
    """Refuses connections of callers."""

    def runner(self, using: object) -> Runner:  # noqa: ARG002
        """Refuse."""
        _no_transactions()

    def run_blocking(self, using: object, steps: Steps[T]) -> T:  # noqa: ARG002
        """Refuse."""
        steps.close()
        _no_transactions()


class RedisInsight(InsightOverRows):
    """`Insight`, with the facts of the server."""

    def __init__(self, runner: Runner, rows: RedisJobRows, wire: AsyncWire) -> None:
        super().__init__(runner, rows, _no_facts)
        self._wire = wire

    async def facts(self) -> dict[str, str]:  # noqa: D102
        now, (size,) = await self._runner.look(lambda: read(("GET", "bytes")))
        info = await server_info(self._wire)
        kind, version = kind_of(info)
        shown = ("role", "used_memory", "maxmemory", "maxmemory_policy", "aof_enabled", "rdb_last_bgsave_status")
        return {
            "now_us": str(now),
            "server": kind,
            "version": version,
            "completed_bytes": str(int(size or 0)),
            **{name: info[name] for name in shown if name in info},
        }


def _no_facts() -> Steps[dict[str, str]]:
    yield from ()
    return {}


class RedisParts(StoreParts):
    """The connections of one process."""

    def __init__(self, location: RedisLocation, clock: Callable[[], int] | None) -> None:
        self.server = self.owner = Server(location, clock)
        self.wire = AsyncWire(self.server)
        self.notifier = self._notifier = notifier = RedisNotifier(location)
        directory = Directory(self.server)
        self.runner = RedisRunner(self.wire, directory, notifier.wake_here)
        self.rows = self._rows = rows = RedisJobRows(
            directory, Steady() if clock is None else None, location.completed_bytes
        )
        self.jobs = RedisJobs(self.runner, rows, notifier.notify_ends)
        self.queues = QueuesOverRows(self.runner, rows)
        self.schedules = SchedulesOverRows(self.runner, RedisScheduleRows(), self.jobs.inserter, notifier.notify)
        self.insight = RedisInsight(self.runner, rows, self.wire)
        self.schema = self.described = RedisSchema(self.wire, location)
        self.transactions = _NoTransactions()
        self.callers = _NoCallers()

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
        self.wire.pools.close()
        await self._notifier.ended(within=2.0)


class RedisBackend(BackendOverParts[RedisParts]):
    """`Backend` on Redis and Valkey."""

    def __init__(self, location: RedisLocation, clock: Callable[[], int] | None) -> None:
        super().__init__(location.url, location.full_url, lambda: RedisParts(location, clock))

    @property
    def capabilities(self) -> Capabilities:  # noqa: D102 - the port states the contracts
        info = self._parts.here.described.info
        return Capabilities(
            store="redis",
            version=" ".join(kind_of(info)) if info else "unknown before it is opened",
            durability=_DURABILITY[info.get("aof_enabled", "")],
            notifies=True,
            joins_transactions=False,
            shared=True,
            repeat_shows_outcome=True,
            limits_keys=False,
            refusals={
                STREAMS: NO_STREAMS,
                "join transactions": NO_TRANSACTIONS,
                LIMITS_PER_KEY: NO_LIMITS_PER_KEY,
            },
        )

    def extender(self) -> RedisExtender:  # noqa: D102
        return self._parts.here.extender()


def open_backend(url: str, *, clock: Callable[[], int] | None = None) -> RedisBackend:
    """Return the backend of a URL, not yet opened."""
    return RedisBackend(RedisLocation.parse(url), clock)
