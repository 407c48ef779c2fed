"""The yardstick on PostgreSQL: what a careful person writes by hand with psycopg alone.

It does: the server's own durability; ids made by the client (UUIDv7, unique in the ledger); rows that move between
small tables, `ready` to `leased` to `done`, with their payload; claims of 500 with SKIP LOCKED, in the order of
(lane, turn, seq), from a remembered floor; a growing fence per claim; a ledger in which a job can be completed once,
and only under the fence that holds it; each job of a batch finished by name. Claim, handling and finish overlap: two
connections, the next claim and the last finish under way while a batch is handled. Each job is handed to a handler, an
`async def` that gets the job's id and its payload decoded, and is driven to its end by hand.

It does not: check arguments, know queues and tasks, priorities, retries, extension, rescue or failures, count for
charts, keep a job's body once it is done, or survive a cut connection.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import closing
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg import sql

from benchmarks.raw.common import BATCH, Drained, Held, be_a_process, decode, handle, ready_to_go, uuids

PROGRAM = "benchmarks.raw.postgres"
OURS = {"schema", "install", "pool", "prepare"}
"""Settings in a URL that libpq does not know."""

_NOW = "(extract(epoch from clock_timestamp()) * 1000000)::bigint"
_LEASE = 30_000_000
_LANE = 1
_LOWEST = (-(2**62), 0)
_QUICK = (
    "autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0, "
    "vacuum_truncate = false"
)

_SCHEMA = f"""
create sequence fence as bigint cache 1;
create sequence seq as bigint cache 1;
create table ready (
    lane integer not null, turn bigint not null, seq bigint not null default nextval('seq'), id uuid not null,
    payload text not null, attempt integer not null default 0, primary key (lane, turn, seq)
) with ({_QUICK});
create table leased (
    seq bigint primary key, lane integer not null, turn bigint not null, id uuid not null, payload text not null,
    attempt integer not null, fence bigint not null, worker text not null, until bigint not null,
    started_at bigint not null
) with ({_QUICK});
create table done (
    id uuid primary key, seq bigint not null, fence bigint not null, worker text not null, attempt integer not null,
    started_at bigint not null, finished_at bigint not null
);
"""

_COPY = "copy ready (lane, turn, id, payload) from stdin"
_INSERT = "insert into ready (lane, turn, id, payload) values (%s, %s, %s, %s)"
_INSERT_AND_WAKE = f"with made as ({_INSERT}) select pg_notify(%s, '')"

# Row addresses as an array keep the plan, whatever the statistics say.
_CLAIM = f"""
with picked as materialized (
    select ctid as place from ready where lane = {_LANE} and (turn, seq) >= (%s, %s)
    order by lane, turn, seq limit {BATCH} for update skip locked
),
holder as materialized (
    select nextval('fence') as fence, {_NOW} as now where exists (select 1 from picked)
),
gone as (
    delete from ready where ctid = any(array(select place from picked))
    returning lane, turn, seq, id, payload, attempt + 1 as attempt
),
taken as (
    insert into leased (seq, lane, turn, id, payload, attempt, fence, worker, until, started_at)
    select seq, lane, turn, id, payload, attempt, fence, %s, now + {_LEASE}, now from gone cross join holder
)
select seq, id::text, payload, turn, fence from gone cross join holder
"""  # noqa: S608 - constants

_FINISH = f"""
with gone as (
    delete from leased where seq = any(%s::bigint[]) and fence = %s
    returning id, seq, fence, worker, attempt, started_at
)
insert into done select id, seq, fence, worker, attempt, started_at, {_NOW} from gone
"""  # noqa: S608 - constants

# A table that was just filled has no statistics: the planner takes what is ready for few rows, and sorts all of them.
_KEEP_TO_INDEXES = (
    "set enable_seqscan = off; set enable_bitmapscan = off; set enable_sort = off; "
    "set plan_cache_mode = force_generic_plan"
)

_COUNTS = """
select (select count(distinct id) from (
           select id from ready union all select id from leased union all select id from done) as every),
       (select count(*) from ready), (select count(*) from leased), (select count(*) from done)
"""

Row = tuple[int, str, str, int, int]


def split(target: str) -> tuple[str, str]:
    """Return what libpq reads of a URL, and the schema that it names."""
    parts = urlsplit(target)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    schema = dict(pairs).get("schema", "holdfast")
    libpq = [(name, value) for name, value in pairs if name not in OURS]
    return urlunsplit(parts._replace(query=urlencode(libpq))), schema


def connect(target: str) -> psycopg.Connection[Any]:
    """Connect, with the schema first in the search path."""
    conninfo, schema = split(target)
    connection: psycopg.Connection[Any] = psycopg.connect(conninfo, autocommit=True, prepare_threshold=0)
    _prepare(connection, schema)
    return connection


def _prepare(connection: psycopg.Connection[Any], schema: str) -> None:
    connection.execute("select set_config('search_path', %s, false)", (schema,))


async def connect_async(target: str) -> psycopg.AsyncConnection[Any]:
    """Connect for coroutines, with plans that keep to indexes."""
    conninfo, schema = split(target)
    connection: psycopg.AsyncConnection[Any] = await psycopg.AsyncConnection.connect(
        conninfo, autocommit=True, prepare_threshold=0
    )
    await connection.execute("select set_config('search_path', %s, false)", (schema,))
    await connection.execute(_KEEP_TO_INDEXES.encode(), prepare=False)
    return connection


def create(target: str) -> None:
    """Make the schema and its tables."""
    conninfo, schema = split(target)
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(sql.SQL("create schema {}").format(sql.Identifier(schema)))
        _prepare(connection, schema)
        connection.execute(_SCHEMA.encode())


def _turn() -> int:
    return time.time_ns() // 1000


def bulk(connection: psycopg.Connection[Any], count: int) -> None:
    """Copy jobs in by one transaction."""
    turn = _turn()
    rows = [f'{_LANE}\t{turn}\t{job_id}\t{{"n":{number}}}\n' for number, job_id in enumerate(uuids(count))]
    with connection.cursor().copy(_COPY) as copy:
        for first in range(0, count, 1000):
            copy.write("".join(rows[first : first + 1000]))


def one(connection: psycopg.Connection[Any], number: int) -> None:
    """Insert one job in a separate transaction, and notify the listeners."""
    row = (_LANE, _turn(), uuids(1)[0], f'{{"n":{number}}}')
    connection.execute(_INSERT_AND_WAKE, (*row, _channel(connection)))


def _channel(connection: psycopg.Connection[Any]) -> str:
    return f"raw_{connection.info.dbname}"


class Claims:
    """Claims on one connection, from a floor that is dropped when a claim comes back short."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], worker: str) -> None:
        self._cursor = connection.cursor(binary=True)
        self._worker = worker
        self._floor = _LOWEST

    async def next(self) -> list[Row]:
        """Lease the next jobs; none are left if it returns none."""
        rows = await self._from(self._floor)
        if not rows and self._floor != _LOWEST:
            rows = await self._from(_LOWEST)
        if len(rows) < BATCH:
            self._floor = _LOWEST
        else:
            self._floor = max((row[3], row[0]) for row in rows)
        return rows

    async def _from(self, floor: tuple[int, int]) -> list[Row]:
        await self._cursor.execute(_CLAIM, (*floor, self._worker))
        return await self._cursor.fetchall()


async def finish(connection: psycopg.AsyncConnection[Any], fence: int, seqs: list[int]) -> None:
    """Complete jobs that are held under this fence."""
    cursor = await connection.execute(_FINISH, (seqs, fence))
    if cursor.rowcount != len(seqs):
        message = f"{len(seqs) - cursor.rowcount} of {len(seqs)} leases were lost under fence {fence}"
        raise RuntimeError(message)


async def overlapped(target: str) -> Drained:
    """Claim, handle and finish at once until nothing is ready."""
    claimer, finisher = await connect_async(target), await connect_async(target)
    claims = Claims(claimer, f"raw-{os.getpid()}")
    ready_to_go()
    handled = 0
    finishing: asyncio.Task[None] | None = None
    claiming = asyncio.create_task(claims.next())
    while rows := await claiming:
        claiming = asyncio.create_task(claims.next())
        await asyncio.sleep(0)  # lets the claim go out before the batch is handled
        for _, job_id, payload, _, _ in rows:
            try:
                handle(job_id, **decode(payload)).send(None)
            except StopIteration:
                handled += 1
        if finishing is not None:
            await finishing
        finishing = asyncio.create_task(finish(finisher, rows[0][4], [row[0] for row in rows]))
        await asyncio.sleep(0)
    if finishing is not None:
        await finishing
    await claimer.close()
    await finisher.close()
    return Drained(handled)


def drain(target: str) -> Drained:
    """Be a process that drains."""
    return asyncio.run(overlapped(target))


def watch(target: str, count: int) -> list[tuple[int, int]]:
    """Handle `count` jobs as they come; return of each its number and when its handler began, in ns."""
    starts: list[tuple[int, int]] = []
    worker = f"raw-{os.getpid()}"
    with closing(connect(target)) as listener, closing(connect(target)) as connection:
        listener.execute(sql.SQL("listen {}").format(sql.Identifier(_channel(listener))))
        connection.execute(_KEEP_TO_INDEXES.encode(), prepare=False)
        ready_to_go()
        while len(starts) < count:
            rows: list[Row] = connection.execute(_CLAIM, (*_LOWEST, worker), binary=True).fetchall()
            if not rows:
                for _ in listener.notifies(timeout=1.0, stop_after=1):
                    pass
                continue
            starts.extend((decode(payload)["n"], time.monotonic_ns()) for _, _, payload, _, _ in rows)
            connection.execute(_FINISH, ([row[0] for row in rows], rows[0][4]))
    return starts


def held(target: str) -> Held:
    """Count what the tables hold."""
    with closing(connect(target)) as connection:
        return Held(*connection.execute(_COUNTS).fetchone() or (0, 0, 0, 0))


def span(target: str) -> float:
    """Return the seconds from the first claim to the last completion, by the ledger."""
    with closing(connect(target)) as connection:
        (micros,) = connection.execute("select max(finished_at) - min(started_at) from done").fetchone() or (0,)
    return float(micros) / 1e6


if __name__ == "__main__":
    be_a_process(drain, watch)
