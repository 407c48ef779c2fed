"""Each hot statement reads, and locks, a bounded number of rows, however many there are.

The plans are not asked for, but run: the server counts the rows that a session has read, those of temporary tables and
those that it threw away included.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pymysql
import pytest
from tests.servers import mysql

from holdfast.app.open import open_backend
from holdfast.backends.mysql.statements import MysqlStatements
from holdfast.backends.sql.steps import Numbers

SOME = 50
SEQS = Numbers(range(1, 2 * SOME, 2))  # with gaps, so that no range stands for them
RANGE = {"first": 1, "last": SOME, "count": SOME}
RUNNING = 2 * SOME  # the first jobs; all others are ready, scheduled, blocked and completed at once
WAITING = Numbers(seq + RUNNING for seq in SEQS)
PLACES = [(seq, seq) for seq in WAITING]
LANE_RANGE = {"first": RUNNING + 1, "last": RUNNING + SOME, "count": SOME, "lane_id": 1, "turn": RUNNING + 3}
IDS = [f"018f0000-0000-7000-8000-{seq:012d}" for seq in SEQS]
HOLDER = {"worker_id": "w", "span": 1, "isolates": 1}
FRONT = {"lane_id": 1, "turn": 0, "seq": 0, "limit": SOME}
CLAIMS = [{"task": "greet", "unique_key": str(seq), "id": job_id} for seq, job_id in zip(SEQS, IDS, strict=True)]
STREAM = {"category_id": 1, "stream": "s7"}
PAGE = {"category": "shop", "after": 100, "limit": SOME}

HOT: dict[str, dict[str, Any]] = {
    "claim_lanes": {"tasks": ["greet"], "any_queue": 1, "queues": []},
    "lane_front": FRONT,
    "lock_front": FRONT,
    "lease_range": {**LANE_RANGE, **HOLDER},
    "leave_front_range": LANE_RANGE,
    "lease_listed": {**HOLDER, "lane_id": 1, "places": PLACES},
    "leave_front_listed": {"lane_id": 1, "places": PLACES},
    "bodies": {"seqs": WAITING},
    "known_ids": {"ids": IDS},
    "known_ids_now": {"ids": IDS},
    "complete_range": {**RANGE, "fence": 7},
    "leave_range": {**RANGE, "fence": 7},
    "count_completed_range": {"first": 1, "last": SOME, "fence": 7},
    "complete_listed": {"seqs": SEQS, "fence": 0},
    "leave_listed": {"seqs": SEQS, "fence": 7},
    "count_completed_listed": {"seqs": SEQS, "fence": 7},
    "held_among": {"seqs": SEQS, "fences": SEQS},
    "lock_leases": {"seqs": SEQS, "fences": SEQS},
    "lock_batch": {"seqs": SEQS, "fences": SEQS, "milliseconds": 1},
    "lock_lease": {"seq": 1, "fence": 1, "milliseconds": 1},
    "lock_extendable": {"seqs": SEQS, "fences": SEQS},
    "extend_many": {"seqs": SEQS, "span": 1},
    "seen_leases": {"seqs": SEQS},
    "ended": {"seqs": SEQS, "fences": SEQS},
    "due_jobs": {"limit": SOME},
    "next_due": {},
    "lock_job": {"id": IDS[3]},
    "lock_waiting": {"id": IDS[3]},
    "set_turns": {"seq": 1, "turn": 1},
    "take_order_key": {"queue": "default", "order_key": "7"},
    "lock_order_keys": {"seqs": WAITING},
    "free_order_keys": {"seqs": WAITING},
    "order_keys_of": {"seqs": WAITING},
    "first_of_key": {"key_id": RUNNING + 7},
    "old_completed": {"keep": 1, "limit": SOME},
    "lock_completed": {"seqs": WAITING, "keep": 1},
    "prune_completed": {"seqs": WAITING},
    "prune_attempts": {"seqs": WAITING},
    "prune_jobs": {"seqs": WAITING},
    "prune_unique_keys": {"limit": SOME},
    "unique_holders": {"claims": CLAIMS},
    "lanes_of": {"queue": None, "task": None},
    "list_ready": {"seqs": WAITING},
    "jobs_ahead": {"turn": 10**9, "seq": 10**9, "limit": SOME},
    "queues": {"most": SOME},
    "lock_head": {"category_id": 1, "partition_id": 1},
    "known_events": {"ids": IDS},
    "known_events_now": {"ids": IDS},
    "version_of_stream": STREAM,
    "version_of_stream_now": STREAM,
    "read_partition": {**PAGE, "partition_id": 1},
    "sizes_of_partition": {**PAGE, "partition_id": 1},
    "read_stream": {**PAGE, "after": 0, "stream": "s7"},
    "read_stream_backwards": {**PAGE, "after": 10**9, "stream": "s7"},
    "sizes_of_stream": {**PAGE, "after": 0, "stream": "s7"},
    "stream_version": {"category": "shop", "stream": "s7"},
    "position_at": {"category": "shop", "partition_id": 1, "at": 1},
    "version_at": {"category": "shop", "stream": "s7", "at": 1},
    "last_jobs": {},
    "last_ends": {},
    "lock_expired": {"longest": None, "limit": SOME},  # these read all that runs, which the slots of workers bound
    "lock_of_worker": {"worker_id": "w", "limit": SOME},
}
BOUND = 30 * SOME  # rows read by one statement, temporary tables included
FEWER = 100_000  # of what is not ready, and of events: ten times as many take minutes, and show no more

DIGITS = "(select 0 as d union all " + " union all ".join(f"select {n}" for n in range(1, 10)) + ")"
FILL = """
insert into holdfast_queue (queue) values ('default');
insert into holdfast_lane (lane_id, queue, task) values (1, 'default', 'greet'), (2, 'default', 'other');
insert into holdfast_job
    (seq, id, lane_id, payload, priority, max_attempts, enqueued_at, turn, payload_bytes, order_key)
select n, concat('018f0000-0000-7000-8000-', lpad(n, 12, '0')), 1, '[]', 0, 5, 1, n, 2, n from {numbers};
insert into holdfast_ready (lane_id, turn, seq, payload_bytes)
select 1, seq, seq, 2 from holdfast_job where seq > {running};
insert into holdfast_scheduled (run_at, seq, retrying)
select seq, seq, 0 from holdfast_job where seq between {running} + 1 and {fewer};
insert into holdfast_completed (seq, fence, worker_id, attempt, started_at, finished_at)
select seq, seq, 'w', 1, 1, 1 from holdfast_job where seq between {running} + 1 and {fewer};
insert into holdfast_key_head (key_id, queue, order_key, head_seq)
select seq, 'default', seq, seq from holdfast_job where seq <= {fewer};
insert into holdfast_blocked (seq, key_id, place)
select seq, seq % 5000 + 1, seq from holdfast_job where seq between {running} + 1 and {fewer};
insert into holdfast_unique_key (task, unique_key, id, unique_scope, until_at)
select 'greet', seq, id, 'period', seq from holdfast_job where seq <= {fewer};
insert into holdfast_running
    (seq, lane_id, fence, worker_id, lease_until, lease_span, started_at, attempt, excused, interrupted, lost, isolated)
select seq, 1, seq, 'w', 1, 1, 1, 1, 0, 0, 0, 0 from holdfast_job where seq <= {running};
insert into holdfast_category (category_id, category, partitions) values (1, 'shop', 2);
insert into holdfast_head (category_id, partition_id, position_id) values (1, 0, {fewer}), (1, 1, {fewer});
insert into holdfast_event
    (category_id, partition_id, position_id, stream, version, event_id, event_name, payload, recorded_at)
select 1, 1, seq, concat('s', seq % 10), seq, id, 'n', '[]', 1 from holdfast_job where seq <= {fewer}
"""


def _fill(cursor: Any, rows: int) -> None:
    names = "abcdef"[: len(str(rows)) - 1]
    sums = "1 + " + " + ".join(f"{name}.d * {10**place}" for place, name in enumerate(names))
    numbers = f"(select {sums} as n from {', '.join(f'{DIGITS} as {name}' for name in names)}) as numbers"  # noqa: S608
    cursor.execute("set session sql_mode = ''")  # numbers become texts
    given = {"numbers": numbers, "running": RUNNING, "fewer": min(rows, FEWER)}
    for statement in FILL.format(**given).split(";"):
        cursor.execute(statement)


def _size(flavour: str, rows: int, *marks: pytest.MarkDecorator) -> Any:
    return pytest.param((flavour, rows), id=f"{flavour}-{rows}", marks=marks)


SIZES = [
    _size("mariadb", 0),
    _size("mariadb", 1_000),
    _size("mariadb", 1_000_000, pytest.mark.slow, pytest.mark.timeout(300)),
    _size("mysql", 0, pytest.mark.slow),
    _size("mysql", 1_000, pytest.mark.slow),
    _size("mysql", 1_000_000, pytest.mark.torture, pytest.mark.timeout(300)),
]


@pytest.fixture(scope="module")
def filled(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database with so many ready jobs, with jobs in the other states, and with events."""
    flavour, rows = request.param
    with mysql.own_database(flavour) as own:
        mysql.run(own, open_backend(own).schema.script())
        connection = mysql.connect(own, read_timeout=280)
        if rows:
            with connection.cursor() as cursor:
                _fill(cursor, rows)
        connection.close()
        yield own


def _session(url: str) -> pymysql.Connection[Any]:
    settings = "set session transaction isolation level read committed"
    return mysql.connect(url, init_command=settings, read_timeout=60)


def _reads(cursor: Any) -> int:
    cursor.execute("show session status like 'Handler_read%'")
    return sum(int(number) for _, number in cursor.fetchall())


def _rows_read(url: str, name: str, given: dict[str, Any]) -> int:
    """Run a statement and roll it back; return the rows that it has read."""
    connection = _session(url)
    try:
        with connection.cursor() as cursor:
            connection.begin()
            own = _reads(cursor)
            before = _reads(cursor)
            for text in MysqlStatements(None).filled(name, given):
                cursor.execute(text)
                cursor.fetchall()
            read = _reads(cursor) - before - (before - own)
            connection.rollback()
    finally:
        connection.close()
    return read


@pytest.mark.parametrize("filled", SIZES, indirect=True)
def test_no_hot_statement_reads_more_rows_the_more_there_are(filled: str):
    read = {name: _rows_read(filled, name, given) for name, given in HOT.items()}
    assert {name: number for name, number in read.items() if number > BOUND} == {}


@pytest.mark.parametrize(
    ("name", "table", "locked"),
    [
        ("lock_front", "ready", SOME),
        ("leave_front_listed", "ready", SOME),
        ("leave_front_range", "ready", 1),
        ("due_jobs", "scheduled", SOME),
        ("held_among", "running", SOME),
        ("lock_leases", "running", SOME),
        ("lock_extendable", "running", SOME),
        ("lock_lease", "running", 1),
        ("leave_range", "running", 1),
        ("lock_expired", "running", SOME),
        ("lock_job", "running", 1),
        ("lock_job", "ready", 0),
        ("lock_completed", "completed", SOME),
        ("prune_completed", "completed", SOME),
        ("lock_order_keys", "key_head", SOME),
        ("first_of_key", "blocked", 1),
        ("lock_completed", "job", 0),
        ("lock_leases", "job", 0),
        ("lock_leases", "lane", 0),
    ],
)
@pytest.mark.parametrize("filled", [SIZES[1], SIZES[4]], indirect=True)
def test_a_statement_locks_its_rows_and_no_others(filled: str, name: str, table: str, locked: int):
    holder, other = _session(filled), _session(filled)
    try:
        holder.begin()
        with holder.cursor() as cursor, other.cursor() as looker:
            looker.execute(f"select count(*) from holdfast_{table}")  # noqa: S608 - our name
            ((whole,),) = looker.fetchall()
            for text in MysqlStatements(None).filled(name, HOT[name]):
                cursor.execute(text)
                cursor.fetchall()
            other.begin()
            looker.execute(f"select 1 from holdfast_{table} force index (primary) for update skip locked")  # noqa: S608
            assert whole - len(looker.fetchall()) == locked
    finally:
        holder.close()
        other.close()
