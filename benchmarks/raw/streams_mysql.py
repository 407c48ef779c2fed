"""Streams by hand on MySQL and MariaDB: a head row per partition, effect and position in one transaction.

It does: the server's own durability; event ids made by the client, unique; positions per partition in commit order
(the head row is locked first), versions per stream, unique; a position row that is moved only from where it was, under
a generation. Rows are read and written by asyncmy, as Holdfast does: PyMySQL takes four times as long for a row.

It does not: check names or payloads, know categories, expected versions, repeats, nodes, leaders or parked events.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

from benchmarks.raw.common import uuids
from benchmarks.raw.mysql import AsyncLoop, connect, connect_blocking, execute

__all__ = ["append", "connect", "consume", "create", "effects", "schema_of"]

_NOW = "timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))"
_SCHEMA = """
create table raw_head (part int not null primary key, pos bigint not null);
create table raw_event (
    part int not null, pos bigint not null, stream varchar(255) collate utf8mb4_bin not null, version bigint not null,
    id varchar(36) character set ascii not null unique, name varchar(128) not null, payload longtext not null,
    headers mediumtext, recorded_at bigint not null, primary key (part, pos), unique key by_stream (stream, version)
) character set utf8mb4;
create table raw_place (part int not null primary key, generation bigint not null, pos bigint not null);
create table raw_effect (id varchar(36) character set ascii not null, n bigint not null)
"""
_VERSION = "select version from raw_event force index (by_stream) where stream = %s order by version desc limit 1"
_EVENTS, _EFFECTS = "insert into raw_event values ", "insert into raw_effect values "
_EVENT = f"(%s, %s, %s, %s, %s, 'changed', %s, null, {_NOW})"


def create(target: str, partitions: int) -> None:
    with closing(connect_blocking(target)) as connection:
        for statement in _SCHEMA.split(";"):
            connection.execute(statement)
        for number in range(partitions):
            connection.execute("insert into raw_head values (%s, 0)", (number,))
            connection.execute("insert into raw_place values (%s, 1, 0)", (number,))


def append(connection: AsyncLoop, part: int, events: Sequence[tuple[str, str]]) -> None:
    """Append (stream, payload) of one partition in a transaction of their own."""
    connection.run(_append(connection.raw, part, events))


async def _append(connection: Any, part: int, events: Sequence[tuple[str, str]]) -> None:
    await connection.begin()
    cursor = await execute(connection, "select pos from raw_head where part = %s for update", (part,))
    (pos,) = await cursor.fetchone()
    streams = {stream for stream, _ in events}
    await cursor.execute(";".join(cursor.mogrify(_VERSION, (stream,)) for stream in streams))  # all in one message
    versions: dict[str, int] = {}
    for stream in streams:
        row = await cursor.fetchone()
        versions[stream] = row[0] if row else 0
        await cursor.nextset()
    values: list[object] = []
    for number, (event_id, (stream, payload)) in enumerate(zip(uuids(len(events)), events, strict=True), pos + 1):
        versions[stream] += 1
        values += (part, number, stream, versions[stream], event_id, payload)
    await execute(connection, _EVENTS + ",".join([_EVENT] * len(events)), values)
    await execute(connection, "update raw_head set pos = %s where part = %s", (pos + len(events), part))
    await connection.commit()


def consume(connection: AsyncLoop, partitions: int, batch: int) -> int:
    """Read every partition to its end, batch by batch; how many events."""
    return connection.run(_consume(connection.raw, partitions, batch))


async def _consume(connection: Any, partitions: int, batch: int) -> int:
    done = 0
    for part in range(partitions):
        cursor = await execute(connection, "select pos from raw_place where part = %s", (part,))
        (pos,) = await cursor.fetchone()
        while True:
            await cursor.execute(
                "select pos, id, stream, version, name, payload, headers, recorded_at from raw_event "
                "where part = %s and pos > %s order by part, pos limit %s",
                (part, pos, batch),
            )
            rows = await cursor.fetchall()
            if not rows:
                break
            await connection.begin()
            effects = [value for row in rows for value in (row[1], row[3])]
            await execute(connection, _EFFECTS + ",".join(["(%s, %s)"] * len(rows)), effects)
            moved = await execute(
                connection,
                "update raw_place set pos = %s where part = %s and generation = 1 and pos = %s",
                (rows[-1][0], part, pos),
            )
            await connection.commit()
            if moved.rowcount != 1:
                message = "the position was moved by another consumer"
                raise RuntimeError(message)
            pos = rows[-1][0]
            done += len(rows)
    return done


def effects(target: str, table: str = "raw_effect") -> int:
    with closing(connect_blocking(target)) as connection:
        (count,) = connection.execute(f"select count(distinct id) from {table}").fetchone()  # noqa: S608
    return int(count)


def schema_of(target: str) -> str:
    return str(target.rpartition("/")[2])
