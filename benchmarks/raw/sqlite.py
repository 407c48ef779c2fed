"""The yardstick on SQLite: what a careful person writes by hand with the driver alone.

It does: WAL with synchronous=FULL; ids made by the client (UUIDv7 as text, unique); a growing fence per claim; a lease
row per job; a ledger in which a job can be completed once, and only under the fence that holds it; each job of a batch
finished by name, so that one that failed could be left out. Each job is handed to a handler, an `async def` that gets
the job's id and its payload decoded, and is driven to its end by hand.

It does not: check arguments, keep priorities or instants, know queues and tasks, retry, extend, rescue, record
failures, count for charts, or overlap claim and finish.

Tried and slower here: one table updated in place, `executemany` for finishes, `delete … returning`. Faster by
roughly a fifth, but not used, because a batch could then only end as a whole: finishing by range of seq.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from contextlib import closing
from typing import Any

from benchmarks.raw.common import BATCH, Drained, Held, be_a_process, decode, handle, ready_to_go, uuids

PROGRAM = "benchmarks.raw.sqlite"
LOOK_EVERY = 0.001  # seconds between looks at data_version
_LEASE = 30_000_000

_SCHEMA = """
create table meta (fence integer not null);
insert into meta values (0);
create table job (seq integer primary key, id text not null unique, payload text not null);
create table ready (seq integer primary key);
create table lease (
    seq integer primary key, fence integer not null, worker text not null, until integer not null,
    started_at integer not null
);
create table done (
    seq integer primary key, fence integer not null, worker text not null, started_at integer not null,
    finished_at integer not null
);
"""


def connect(path: str) -> sqlite3.Connection:
    """Open with the durability that Holdfast has by default."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=30)
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = full")
    return connection


def create(path: str) -> None:
    connection = connect(path)
    connection.executescript(_SCHEMA)
    connection.close()


def bulk(connection: sqlite3.Connection, count: int) -> None:
    """Insert jobs in one transaction."""
    rows = [(job_id, f'{{"n":{number}}}') for number, job_id in enumerate(uuids(count))]
    connection.execute("begin immediate")
    (last,) = connection.execute("select coalesce(max(seq), 0) from job").fetchone()
    connection.executemany("insert into job (id, payload) values (?, ?)", rows)
    connection.execute("insert into ready select seq from job where seq > ?", (last,))
    connection.execute("commit")


def one(connection: sqlite3.Connection, number: int) -> None:
    """Insert one job in a transaction of its own."""
    connection.execute("begin immediate")
    cursor = connection.execute("insert into job (id, payload) values (?, ?)", (uuids(1)[0], json.dumps({"n": number})))
    connection.execute("insert into ready values (?)", (cursor.lastrowid,))
    connection.execute("commit")


def claim(connection: sqlite3.Connection, worker: str) -> tuple[int, list[tuple[int, str, str]]]:
    """Lease the next jobs; return the fence, and (seq, id, payload) of each."""
    execute = connection.execute
    execute("begin immediate")
    rows: list[tuple[int, str, str]] = execute(
        "select seq, id, payload from (select seq from ready order by seq limit ?) cross join job using (seq)", (BATCH,)
    ).fetchall()
    fence = 0
    if rows:
        (fence,) = execute("update meta set fence = fence + 1 returning fence").fetchone()
        now = time.time_ns() // 1000
        last = rows[-1][0]
        execute(
            "insert into lease select seq, ?, ?, ?, ? from ready where seq <= ?",
            (fence, worker, now + _LEASE, now, last),
        )
        execute("delete from ready where seq <= ?", (last,))
    execute("commit")
    return fence, rows


def finish(connection: sqlite3.Connection, fence: int, seqs: list[int]) -> None:
    """Complete jobs that are held under this fence."""
    names = json.dumps(seqs)
    execute = connection.execute
    execute("begin immediate")
    written = execute(
        "insert into done select seq, fence, worker, started_at, ? "
        "from json_each(?) cross join lease on seq = value where fence = ?",
        (time.time_ns() // 1000, names, fence),
    ).rowcount
    execute("delete from lease where seq in (select value from json_each(?)) and fence = ?", (names, fence))
    execute("commit")
    if written != len(seqs):
        message = f"{len(seqs) - written} of {len(seqs)} leases were lost under fence {fence}"
        raise RuntimeError(message)


def drain(connection: sqlite3.Connection, worker: str) -> Drained:
    """Claim and finish until nothing is ready."""
    handled = 0
    while True:
        fence, rows = claim(connection, worker)
        if not rows:
            return Drained(handled)
        for _, job_id, payload in rows:
            try:
                handle(job_id, **decode(payload)).send(None)
            except StopIteration:
                handled += 1
        finish(connection, fence, [seq for seq, _, _ in rows])


def watch(connection: sqlite3.Connection, worker: str, count: int) -> list[tuple[int, int]]:
    """Handle `count` jobs as they come; return of each its number and when its handler began, in ns."""
    starts: list[tuple[int, int]] = []
    version = -1
    while len(starts) < count:
        (seen,) = connection.execute("pragma data_version").fetchone()
        if seen == version:
            time.sleep(LOOK_EVERY)
            continue
        version = seen
        while True:
            fence, rows = claim(connection, worker)
            if not rows:
                break
            starts.extend((decode(payload)["n"], time.monotonic_ns()) for _, _, payload in rows)
            finish(connection, fence, [seq for seq, _, _ in rows])
    return starts


def held(path: str) -> Held:
    """Count what the database holds."""
    connection = connect(path)
    numbers: tuple[Any, ...] = connection.execute(
        "select (select count(distinct id) from job), (select count(*) from ready), (select count(*) from lease),"
        " (select count(*) from done)"
    ).fetchone()
    connection.close()
    return Held(*numbers)


def span(path: str) -> float:
    """Return the seconds from the first claim to the last completion, by the ledger."""
    connection = connect(path)
    (micros,) = connection.execute("select max(finished_at) - min(started_at) from done").fetchone()
    connection.close()
    return float(micros) / 1e6


def _drain(path: str) -> Drained:
    with closing(connect(path)) as connection:
        ready_to_go()
        return drain(connection, f"raw-{os.getpid()}")


def _watch(path: str, count: int) -> list[tuple[int, int]]:
    with closing(connect(path)) as connection:
        ready_to_go()
        return watch(connection, f"raw-{os.getpid()}", count)


if __name__ == "__main__":
    be_a_process(_drain, _watch)
