"""The yardstick on MySQL and MariaDB: what a careful person writes by hand with asyncmy and PyMySQL alone.

It does: the server's own durability; ids made by the client (UUIDv7, unique); bodies that stay where they were written,
and small rows that move, `ready` to `running` to `completed`, as in Holdfast; claims of 500 with SKIP LOCKED, in the
order of (lane, turn, seq), from a remembered floor; rows named by ranges without gaps, with their limit; a growing
fence per claim; a ledger in which a job can be completed once, and only under the fence that holds it. Several
statements travel in one message, with the COMMIT. Claim, handling and finish overlap: two connections, the next claim
and the last finish under way while a batch is handled. Each job is handed to a handler, an `async def` that gets the
job's id and its payload decoded, and is driven to its end by hand.

It does not: check arguments, know queues and tasks, priorities, delays, retries, extension, rescue or failures, count
for charts, or survive a deadlock or a cut connection.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Coroutine, Sequence
from contextlib import closing
from itertools import groupby
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

import asyncmy
import pymysql
from pymysql.constants import CLIENT

from benchmarks.raw.common import BATCH, Drained, Held, be_a_process, decode, handle, ready_to_go, uuids

T = TypeVar("T")

PROGRAM = "benchmarks.raw.mysql"
_NOW = "timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))"
_LEASE = 30_000_000
_LANE = 1
_ROWS_AT_A_TIME = 1000
_POLL = 0.005  # seconds; the server cannot call a client
_LOWEST = (-(2**62), 0)
_READ_COMMITTED = "set session transaction isolation level read committed"
_SETTINGS = {"charset": "utf8mb4", "autocommit": True, "client_flag": CLIENT.MULTI_STATEMENTS | CLIENT.FOUND_ROWS}

_SCHEMA = """
create table raw_fence (fence bigint not null auto_increment primary key);
create table raw_job (
    seq bigint not null auto_increment primary key, id varchar(36) character set ascii not null unique,
    lane_id int not null, payload longtext not null, max_attempts int not null, enqueued_at bigint not null,
    turn bigint not null
);
create table raw_ready (
    lane_id int not null, turn bigint not null, seq bigint not null, attempt int not null default 0,
    primary key (lane_id, turn, seq)
);
create table raw_running (
    seq bigint not null primary key, lane_id int not null, fence bigint not null, worker varchar(128) not null,
    until bigint not null, started_at bigint not null, attempt int not null
);
create table raw_completed (
    seq bigint not null primary key, fence bigint not null, worker varchar(128) not null, attempt int not null,
    started_at bigint not null, finished_at bigint not null, key by_age (finished_at)
)
"""
_INSERT = "insert into raw_job (id, lane_id, payload, max_attempts, enqueued_at, turn) values "
_VALUES = f"(%s, {_LANE}, %s, 25, %s, %s)"
_READY = """
insert into raw_ready (lane_id, turn, seq) select lane_id, turn, seq from raw_job
where seq between %s and %s order by seq limit %s
"""
_LOCK = f"""
select turn, seq from raw_ready
where lane_id = {_LANE} and (turn > %d or (turn = %d and seq > %d))
order by lane_id, turn, seq limit {BATCH} for update skip locked
"""  # noqa: S608 - constants, here and below
_LEASE_RANGE = f"""
insert into raw_running (seq, lane_id, fence, worker, until, started_at, attempt)
select seq, lane_id, last_insert_id(), '%s', {_NOW} + {_LEASE}, {_NOW}, attempt + 1 from raw_ready
where lane_id = {_LANE} and turn = %d and seq between %d and %d order by seq limit %d
"""  # noqa: S608
_LEAVE_READY = f"""
delete from raw_ready where lane_id = {_LANE} and turn = %d and seq between %d and %d order by seq limit %d
"""  # noqa: S608
_BODIES = "select seq, id, payload from raw_job where seq between %d and %d order by seq limit %d"
_COMPLETE = f"""
insert into raw_completed select seq, fence, worker, attempt, started_at, {_NOW} from raw_running
where seq between %d and %d and fence = %d order by seq limit %d
"""  # noqa: S608
_LEAVE_RUNNING = "delete from raw_running where seq between %d and %d and fence = %d order by seq limit %d"
# Fails unless as many rows were changed: the statements behind it, and the COMMIT, are not run then.
_ALL = "select case when row_count() = %d then 1 else (select 1 union select 2) end"
_FAILED = 1242
_COUNTS = """
select (select count(distinct id) from raw_job), (select count(*) from raw_ready), (select count(*) from raw_running),
       (select count(*) from raw_completed)
"""


class Loop(pymysql.connections.Connection):
    """A blocking connection, with the method that the other drivers' connections have."""

    def execute(self, statement: str, values: Sequence[object] = ()) -> Any:
        """Run a statement; return its cursor."""
        cursor = self.cursor()
        cursor.execute(statement, values)
        return cursor


class AsyncLoop:
    """A connection of asyncmy, the driver that Holdfast uses, with the event loop in which blocking code drives it."""

    def __init__(self, target: str) -> None:
        self._loop = asyncio.new_event_loop()
        self.raw = self.run(connect_async(target))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end."""
        return self._loop.run_until_complete(work)

    def execute(self, statement: str) -> None:
        """Run a statement."""
        self.run(execute(self.raw, statement))

    def commit(self) -> None:
        """Commit."""
        self.run(self.raw.commit())

    def close(self) -> None:
        """Close the connection."""
        self.run(self.raw.ensure_closed())
        self.run(asyncio.sleep(0))  # in which the transport closes its socket
        self._loop.close()


class Stretch(NamedTuple):
    """Rows of one turn whose numbers follow one another."""

    turn: int
    first: int
    last: int
    size: int


class Taken(NamedTuple):
    """What a claim has leased."""

    fence: int
    stretches: Sequence[Stretch]
    rows: Sequence[tuple[int, str, str]]


_NOTHING = Taken(0, (), ())


def place_of(target: str) -> dict[str, Any]:
    """Return the arguments of the drivers for a URL."""
    parts = urlsplit(target)
    return {
        "host": parts.hostname or "localhost",
        "port": parts.port or 3306,
        "user": unquote(parts.username or "root"),
        "password": unquote(parts.password or ""),
        "database": parts.path.strip("/") or None,
    }


def connect(target: str) -> AsyncLoop:
    """Connect for the loops by hand."""
    return AsyncLoop(target)


def connect_blocking(target: str) -> Loop:
    """Connect for what is not measured."""
    settings: dict[str, Any] = {**place_of(target), **_SETTINGS, "init_command": _READ_COMMITTED}
    connection: Loop = Loop(**settings, ssl_disabled=True)
    return connection


async def connect_async(target: str) -> Any:
    """Connect for coroutines."""
    return await asyncmy.connect(**place_of(target), **_SETTINGS, init_command=_READ_COMMITTED)


async def execute(connection: Any, statement: str, values: Sequence[object] = ()) -> Any:
    """Run a statement; return its cursor."""
    cursor = connection.cursor()
    await cursor.execute(statement, values)
    return cursor


def create(target: str) -> None:
    """Make the tables."""
    with closing(connect_blocking(target)) as connection:
        for statement in _SCHEMA.split(";"):
            connection.execute(statement)


def bulk(connection: AsyncLoop, count: int) -> None:
    """Insert jobs by one transaction, a thousand at a time."""
    now = time.time_ns() // 1000
    connection.run(_insert(connection.raw, [(job_id, number, now) for number, job_id in enumerate(uuids(count))]))


def one(connection: AsyncLoop, number: int) -> None:
    """Insert one job in a transaction of its own."""
    connection.run(_insert(connection.raw, [(uuids(1)[0], number, time.time_ns() // 1000)]))


async def _insert(connection: Any, jobs: Sequence[tuple[str, int, int]]) -> None:
    await connection.begin()
    for start in range(0, len(jobs), _ROWS_AT_A_TIME):
        some = jobs[start : start + _ROWS_AT_A_TIME]
        values = [value for job_id, number, now in some for value in (job_id, f'{{"n":{number}}}', now, now)]
        cursor = await execute(connection, _INSERT + ",".join([_VALUES] * len(some)), values)
        first = cursor.lastrowid  # the others follow it
        await execute(connection, _READY, (first, first + len(some) - 1, len(some)))
    await connection.commit()


async def _ask(connection: Any, *statements: str) -> list[Sequence[tuple[Any, ...]]]:
    """Run statements in one message; return the rows of each."""
    answers: list[Sequence[tuple[Any, ...]]] = []
    async with connection.cursor() as cursor:
        await cursor.execute(";".join(statements))
        while True:
            answers.append(await cursor.fetchall())
            if not await cursor.nextset():
                return answers


def _stretches(locked: Sequence[tuple[int, int]]) -> list[Stretch]:
    found: list[Stretch] = []
    for _, group in groupby(enumerate(locked), lambda item: (item[1][0], item[1][1] - item[0])):
        rows = [row for _, row in group]
        found.append(Stretch(rows[0][0], rows[0][1], rows[-1][1], len(rows)))
    return found


class Claims:
    """Claims on one connection, from a floor that is dropped when a claim comes back short."""

    def __init__(self, connection: Any, worker: str) -> None:
        self._connection = connection
        self._worker = worker
        self._floor = _LOWEST

    async def next(self) -> Taken:
        """Lease the next jobs; none are left if it returns none."""
        taken = await self._from(self._floor)
        if not taken.rows and self._floor != _LOWEST:
            taken = await self._from(_LOWEST)
        is_short = len(taken.rows) < BATCH
        self._floor = _LOWEST if is_short else (taken.stretches[-1].turn, taken.stretches[-1].last)
        return taken

    async def _from(self, floor: tuple[int, int]) -> Taken:
        turn, seq = floor
        _, locked = await _ask(self._connection, "begin", _LOCK % (turn, turn, seq))
        if not locked:
            await _ask(self._connection, "rollback")
            return _NOTHING
        stretches = _stretches([(row[0], row[1]) for row in locked])
        moves: list[str] = []
        for each in stretches:
            moves += [_LEASE_RANGE % (self._worker, *each), _LEAVE_READY % tuple(each)]
        bodies = [_BODIES % each[1:] for each in stretches]
        answers = await _ask(
            self._connection,
            "insert into raw_fence () values ()",
            *moves,
            *bodies,
            "select last_insert_id()",
            "commit",
        )
        ((fence,),) = answers[-2]
        rows = [(row[0], row[1], row[2]) for answer in answers[1 + len(moves) : -2] for row in answer]
        return Taken(int(fence), stretches, rows)


async def finish(connection: Any, fence: int, stretches: Sequence[Stretch]) -> None:
    """Complete jobs that are held under this fence."""
    statements = ["begin"]
    for _, first, last, size in stretches:
        held = (first, last, fence, size)
        statements += [_COMPLETE % held, _ALL % size, _LEAVE_RUNNING % held, _ALL % size]
    try:
        await _ask(connection, *statements, "commit")
    except asyncmy.errors.OperationalError as error:
        if error.args[0] != _FAILED:
            raise
        await _ask(connection, "rollback")
        message = f"of {sum(each.size for each in stretches)} leases some were lost under fence {fence}"
        raise RuntimeError(message) from None


async def overlapped(target: str) -> Drained:
    """Claim, handle and finish at once until nothing is ready."""
    claimer, finisher = await connect_async(target), await connect_async(target)
    claims = Claims(claimer, f"raw-{os.getpid()}")
    ready_to_go()
    handled = 0
    finishing: asyncio.Task[None] | None = None
    claiming = asyncio.create_task(claims.next())
    while (taken := await claiming).rows:
        claiming = asyncio.create_task(claims.next())
        await asyncio.sleep(0)  # lets the claim go out before the batch is handled
        for _, job_id, payload in taken.rows:
            try:
                handle(job_id, **decode(payload)).send(None)
            except StopIteration:
                handled += 1
        if finishing is not None:
            await finishing
        finishing = asyncio.create_task(finish(finisher, taken.fence, taken.stretches))
        await asyncio.sleep(0)
    if finishing is not None:
        await finishing
    claimer.close()
    finisher.close()
    return Drained(handled)


def drain(target: str) -> Drained:
    """Be a process that drains."""
    return asyncio.run(overlapped(target))


async def _watched(target: str, count: int) -> list[tuple[int, int]]:
    connection = await connect_async(target)
    claims = Claims(connection, f"raw-{os.getpid()}")
    starts: list[tuple[int, int]] = []
    ready_to_go()
    while len(starts) < count:
        taken = await claims.next()
        if not taken.rows:
            await asyncio.sleep(_POLL)
            continue
        starts.extend((decode(payload)["n"], time.monotonic_ns()) for _, _, payload in taken.rows)
        await finish(connection, taken.fence, taken.stretches)
    connection.close()
    return starts


def watch(target: str, count: int) -> list[tuple[int, int]]:
    """Handle `count` jobs as they come; return of each its number and when its handler began, in ns."""
    return asyncio.run(_watched(target, count))


def held(target: str) -> Held:
    """Count what the tables hold."""
    with closing(connect_blocking(target)) as connection:
        return Held(*connection.execute(_COUNTS).fetchone())


def span(target: str) -> float:
    """Return the seconds from the first claim to the last completion, by the ledger."""
    with closing(connect_blocking(target)) as connection:
        (micros,) = connection.execute("select max(finished_at) - min(started_at) from raw_completed").fetchone()
    return float(micros) / 1e6


if __name__ == "__main__":
    be_a_process(drain, watch)
