"""The yardstick of enqueues on PostgreSQL: COPY and single inserts by hand into the tables that Holdfast has made.

It takes the lane as given, checks nothing, counts nothing for charts, notifies no worker and cannot be repeated.
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any

import psycopg

from benchmarks.raw.common import Held, uuids
from benchmarks.raw.postgres import connect

__all__ = ["bulk", "connect", "held", "one", "prepare"]

_LANE = "insert into lane (queue, task) values ('default', 'nothing') returning lane_id"
_RESERVE = "select nextval('job_seq') from generate_series(1, %s)"
_COPY_JOBS = "copy job (seq, id, lane_id, payload, priority, max_attempts, enqueued_at, turn, payload_bytes) from stdin"
_COPY_READY = "copy ready (lane_id, turn, seq, payload_bytes) from stdin"
_ONE = """
with made as (
    insert into job (id, lane_id, payload, priority, max_attempts, enqueued_at, turn, payload_bytes)
    values (%s, %s, %s, 0, 25, %s, %s, %s)
    returning lane_id, turn, seq, payload_bytes
)
insert into ready (lane_id, turn, seq, payload_bytes) select lane_id, turn, seq, payload_bytes from made
"""
_COUNTS = "select (select count(distinct id) from job), (select count(*) from ready)"
_ROWS_AT_A_TIME = 1000


def prepare(connection: psycopg.Connection[Any]) -> int:
    """Make the lane; return its id."""
    (lane_id,) = connection.execute(_LANE).fetchone() or (0,)
    return int(lane_id)


def _copy(connection: psycopg.Connection[Any], statement: str, rows: list[str]) -> None:
    with connection.cursor().copy(statement.encode()) as copy:
        for first in range(0, len(rows), _ROWS_AT_A_TIME):
            copy.write("".join(rows[first : first + _ROWS_AT_A_TIME]))


def bulk(connection: psycopg.Connection[Any], lane_id: int, count: int) -> None:
    """Copy jobs in by one transaction."""
    now = time.time_ns() // 1000
    jobs: list[str] = []
    ready: list[str] = []
    with connection.transaction():
        seqs = [seq for (seq,) in connection.execute(_RESERVE, (count,), binary=True).fetchall()]
        for number, (seq, job_id) in enumerate(zip(seqs, uuids(count), strict=True)):
            payload = f'[[],{{"n":{number}}}]'
            jobs.append(f"{seq}\t{job_id}\t{lane_id}\t{payload}\t0\t25\t{now}\t{now}\t{len(payload)}\n")
            ready.append(f"{lane_id}\t{now}\t{seq}\t{len(payload)}\n")
        _copy(connection, _COPY_JOBS, jobs)
        _copy(connection, _COPY_READY, ready)


def one(connection: psycopg.Connection[Any], lane_id: int, number: int) -> None:
    """Insert one job in a transaction of its own."""
    now = time.time_ns() // 1000
    payload = f'[[],{{"n":{number}}}]'
    connection.execute(_ONE, (uuids(1)[0], lane_id, payload, now, now, len(payload)))


def held(target: str) -> Held:
    """Count what the tables hold."""
    with closing(connect(target)) as connection:
        ids, ready = connection.execute(_COUNTS).fetchone() or (0, 0)
    return Held(ids, ready, 0, 0)
