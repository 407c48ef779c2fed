"""Streams by hand on SQLite: a head row per partition, effect and position in one transaction.

It does: WAL with synchronous=FULL; event ids made by the client, unique; positions per partition in commit order,
versions per stream, unique; a position row that is moved only from where it was, under a generation.

It does not: check names or payloads, know categories, expected versions, repeats, nodes, leaders or parked events.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence

from benchmarks.raw.common import uuids
from benchmarks.raw.sqlite import connect

__all__ = ["append", "connect", "consume", "create", "effects"]

_SCHEMA = """
create table head (part integer primary key, pos integer not null);
create table event (
    part integer not null, pos integer not null, stream text not null, version integer not null,
    id text not null unique, name text not null, payload text not null, headers text, recorded_at integer not null,
    primary key (part, pos), unique (stream, version)
);
create table place (part integer primary key, generation integer not null, pos integer not null);
create table effect (id text not null, n integer not null);
"""


def create(target: str, partitions: int) -> None:
    connection = connect(target)
    connection.executescript(_SCHEMA)
    connection.executemany("insert into head values (?, 0)", [(number,) for number in range(partitions)])
    connection.executemany("insert into place values (?, 1, 0)", [(number,) for number in range(partitions)])
    connection.close()


def append(connection: sqlite3.Connection, part: int, events: Sequence[tuple[str, str]]) -> None:
    """Append (stream, payload) of one partition in a transaction of their own."""
    connection.execute("begin immediate")
    (pos,) = connection.execute(
        "update head set pos = pos + ? where part = ? returning pos", (len(events), part)
    ).fetchone()
    pos -= len(events)
    now = time.time_ns() // 1000
    versions: dict[str, int] = {}
    rows = []
    for event_id, (stream, payload) in zip(uuids(len(events)), events, strict=True):
        pos += 1
        if stream not in versions:
            (last,) = connection.execute("select max(version) from event where stream = ?", (stream,)).fetchone()
            versions[stream] = last or 0
        versions[stream] += 1
        rows.append((part, pos, stream, versions[stream], event_id, "changed", payload, None, now))
    connection.executemany("insert into event values (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    connection.execute("commit")


def consume(connection: sqlite3.Connection, partitions: int, batch: int) -> int:
    """Read every partition to its end, batch by batch; how many events."""
    done = 0
    for part in range(partitions):
        (pos,) = connection.execute("select pos from place where part = ?", (part,)).fetchone()
        while True:
            rows = connection.execute(
                "select pos, id, stream, version, name, payload, headers, recorded_at from event "
                "where part = ? and pos > ? order by pos limit ?",
                (part, pos, batch),
            ).fetchall()
            if not rows:
                break
            connection.execute("begin immediate")
            connection.executemany("insert into effect values (?, ?)", [(row[1], row[3]) for row in rows])
            moved = connection.execute(
                "update place set pos = ? where part = ? and generation = 1 and pos = ?", (rows[-1][0], part, pos)
            ).rowcount
            connection.execute("commit")
            if moved != 1:
                message = "the position was moved by another consumer"
                raise RuntimeError(message)
            pos = rows[-1][0]
            done += len(rows)
    return done


def effects(target: str, table: str = "effect") -> int:
    connection = connect(target)
    (count,) = connection.execute(f"select count(distinct id) from {table}").fetchone()  # noqa: S608 - our own words
    connection.close()
    return int(count)
