"""Streams by hand on PostgreSQL: a head row per partition, effect and position in one transaction.

It does: the server's own durability; event ids made by the client, unique; positions per partition in commit order
(the head row is locked first), versions per stream, unique; a position row that is moved only from where it was, under
a generation.

It does not: check names or payloads, know categories, expected versions, repeats, nodes, leaders or parked events.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from benchmarks.raw.common import uuids
from benchmarks.raw.postgres import connect, split

__all__ = ["append", "connect", "consume", "create", "effects", "schema_of"]

_NOW = "(extract(epoch from clock_timestamp()) * 1000000)::bigint"
_SCHEMA = """
create table raw_head (part integer primary key, pos bigint not null) with (fillfactor = 50);
create table raw_event (
    part integer not null, pos bigint not null, stream text not null, version bigint not null,
    id uuid not null unique, name text not null, payload text not null, headers text, recorded_at bigint not null,
    primary key (part, pos), unique (stream, version)
);
create table raw_place (part integer primary key, generation bigint not null, pos bigint not null)
    with (fillfactor = 50);
create table raw_effect (id uuid not null, n bigint not null);
"""
_VERSIONS = """
select stream, coalesce((select max(version) from raw_event where raw_event.stream = given.stream), 0)
from unnest(%s::text[]) as given (stream)
"""
_INSERT = f"""
insert into raw_event
select %(part)s, pos, stream, version, id, 'changed', payload, null, {_NOW}
from unnest(%(pos)s::bigint[], %(stream)s::text[], %(version)s::bigint[], %(id)s::uuid[], %(payload)s::text[])
    as given (pos, stream, version, id, payload)
"""  # noqa: S608 - our own words


def create(target: str, partitions: int) -> None:
    with connect(target) as connection:
        for statement in _SCHEMA.split(";\n"):
            if statement.strip():
                connection.execute(statement)
        with connection.cursor() as cursor:
            cursor.executemany("insert into raw_head values (%s, 0)", [(number,) for number in range(partitions)])
            cursor.executemany("insert into raw_place values (%s, 1, 0)", [(number,) for number in range(partitions)])
        connection.commit()


def append(connection: psycopg.Connection[Any], part: int, events: Sequence[tuple[str, str]]) -> None:
    """Append (stream, payload) of one partition in a transaction of their own."""
    with connection.transaction():
        (pos,) = connection.execute(
            "update raw_head set pos = pos + %s where part = %s returning pos", (len(events), part)
        ).fetchone() or (0,)
        pos -= len(events)
        streams = list({stream for stream, _ in events})
        versions = dict(connection.execute(_VERSIONS, (streams,)).fetchall())
        given: dict[str, list[object]] = {"pos": [], "stream": [], "version": [], "payload": []}
        for number, (stream, payload) in enumerate(events, pos + 1):
            versions[stream] += 1
            given["pos"].append(number)
            given["stream"].append(stream)
            given["version"].append(versions[stream])
            given["payload"].append(payload)
        connection.execute(_INSERT, {"part": part, "id": uuids(len(events)), **given})


def consume(connection: psycopg.Connection[Any], partitions: int, batch: int) -> int:
    """Read every partition to its end, batch by batch; how many events."""
    done = 0
    for part in range(partitions):
        (pos,) = connection.execute("select pos from raw_place where part = %s", (part,)).fetchone() or (0,)
        while True:
            rows = connection.execute(
                "select pos, id, stream, version, name, payload, headers, recorded_at from raw_event "
                "where part = %s and pos > %s order by pos limit %s",
                (part, pos, batch),
            ).fetchall()
            if not rows:
                break
            with connection.transaction(), connection.cursor() as cursor:
                ids, versions = [row[1] for row in rows], [row[3] for row in rows]
                cursor.execute("insert into raw_effect select * from unnest(%s::uuid[], %s::bigint[])", (ids, versions))
                moved = cursor.execute(
                    "update raw_place set pos = %s where part = %s and generation = 1 and pos = %s",
                    (rows[-1][0], part, pos),
                ).rowcount
            if moved != 1:
                message = "the position was moved by another consumer"
                raise RuntimeError(message)
            pos = rows[-1][0]
            done += len(rows)
    return done


def effects(target: str, table: str = "raw_effect") -> int:
    with connect(target) as connection:
        (count,) = connection.execute(f"select count(distinct id) from {table}").fetchone() or (0,)  # noqa: S608
    return int(count)


def schema_of(target: str) -> str:
    return split(target)[1]
