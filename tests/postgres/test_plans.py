"""The plan of each hot statement keeps to its indexes, whatever the planner knows of the tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest
from tests.servers.postgres import parts_of

from holdfast.backends.postgres.location import PostgresLocation
from holdfast.backends.postgres.pool import pools_for_verbs
from holdfast.backends.postgres.runners import PoolRunner
from holdfast.backends.postgres.statements import Statements
from holdfast.backends.postgres.verbs.claim import claim
from holdfast.backends.postgres.wire import FastConnection
from holdfast.store.backend import Backend
from holdfast.store.values import ClaimRequest

pytestmark = pytest.mark.new_schema  # one that was used before has statistics, and empty pages

BIG = ("job", "ready", "scheduled", "completed", "blocked", "key_head", "unique_key")
CLAIM: dict[str, object] = {
    "worker_id": "w",
    "tasks": ["greet"],
    "queues": None,
    "limit": 500,
    "span": 1,
    "isolates": True,
    "max_bytes": 10**7,
    "floor_lanes": [],
    "floor_turns": [],
    "floor_seqs": [],
}
SOME = [*range(1, 501)]
IDS = [f"018f0000-0000-7000-8000-{number:012x}" for number in SOME]
NAMES = {"task": ["greet"] * 500, "unique_key": [str(number) for number in SOME]}
CLAIMS = json.dumps(
    [{"task": "greet", "unique_key": str(n), "id": IDS[n - 1], "unique_scope": "waiting", "period": None} for n in SOME]
)
HOT: dict[str, dict[str, object]] = {
    "claim": CLAIM,
    "complete": {"seqs": SOME, "fences": SOME, "results": None, "number": 500, "followed": False, "patience": None},
    "lock_order_keys": {"seqs": SOME},
    "bring_up": {"key_ids": SOME},
    "set_heads": {"key_ids": SOME, "seqs": SOME},
    "drop_order_keys": {"key_ids": SOME},
    "take_order_keys": {"queues": ["default"] * 500, "order_keys": [str(number) for number in SOME]},
    "leave_blocked": {"seq": SOME},
    "leave_ready": {"lane_id": SOME, "turn": SOME, "seq": SOME},
    "leave_scheduled": {"run_at": SOME, "seq": SOME},
    "put_ready": {
        "lane_id": SOME,
        "turn": SOME,
        "seq": SOME,
        "attempt": SOME,
        "excused": SOME,
        "interrupted": SOME,
        "lost": SOME,
        "followed": [False] * 500,
    },
    "lock_job": {"id": "018f0000-0000-7000-8000-000000000000"},
    "lock_expired": {"longest": 1, "limit": 500},
    "lock_of_worker": {"worker_id": "w", "limit": 500},
    "extend_many": {"seqs": SOME, "fences": SOME, "span": 1},
    "lock_leases": {"seqs": SOME, "fences": SOME},
    "promote": {"limit": 500},
    "next_due": {},
    "ended": {"seqs": SOME, "fences": SOME},
    "set_turns": {"seq": SOME, "turn": SOME},
    "old_completed": {"keep": 1, "limit": 500},
    "old_failed": {"keep": 1, "limit": 500},
    "old_cancelled": {"keep": 1, "limit": 500},
    "lock_completed": {"seqs": SOME, "keep": 1},
    "prune_completed": {"seqs": SOME},
    "prune_jobs": {"seqs": SOME},
    "enqueue_unique": {
        "ids": IDS,
        "lane_ids": [1] * 500,
        "payloads": ["{}"] * 500,
        "priorities": [0] * 500,
        "max_attempts": [5] * 500,
        "unique_keys": NAMES["unique_key"],
        "unique_scopes": ["waiting"] * 500,
        "tasks": NAMES["task"],
        **dict.fromkeys(["headers", "timeouts", "run_ats", "delays", "periods"], [None] * 500),
    },
    "enqueue_unique_one": {
        "task": "greet",
        "unique_key": "1",
        "id": IDS[0],
        "unique_scope": "waiting",
        "lane_id": 1,
        "payload": "{}",
        "priority": 0,
        "max_attempts": 5,
        **dict.fromkeys(["headers", "timeout", "run_at", "delay", "period"]),
    },
    "add_unique_keys": {
        **NAMES,
        "id": IDS,
        "unique_scope": ["waiting"] * 500,
        "period": [None] * 500,
        "again": False,
    },
    "lock_unique_keys": {"claims": CLAIMS},
    "unique_holders": {"claims": CLAIMS},
    "hold_unique_keys": {
        **NAMES,
        "id": IDS,
        "unique_scope": ["waiting"] * 500,
        "until_at": [None] * 500,
        "replaced_by": [None] * 500,
    },
    "drop_unique_keys": {**NAMES, "id": IDS},
    "drop_keys_of_pruned": {**NAMES, "id": IDS},
    "prune_unique_keys": {"limit": 500},
    "unique_among": {"seqs": SOME},
    "lock_waiting": {"id": IDS[0]},
    "set_arguments": {"seq": SOME, "turn": SOME, "payload": ["{}"] * 500},
}
FILL = """
insert into {s}.queue (queue) values ('default');
insert into {s}.lane (queue, task) values ('default', 'greet'), ('default', 'other');
insert into {s}.job (id, lane_id, payload, priority, max_attempts, enqueued_at, turn, payload_bytes, unique_key)
select gen_random_uuid(), 1, '{{}}', 0, 5, n, n, 2, n from generate_series(1, {n}) as n;
insert into {s}.ready (lane_id, turn, seq, payload_bytes) select 1, turn, seq, 2 from {s}.job;
insert into {s}.scheduled (run_at, seq, retrying) select turn, seq, false from {s}.job;
insert into {s}.completed (seq, fence, worker_id, attempt, started_at, finished_at)
select seq, seq, 'w', 1, 1, 1 from {s}.job;
insert into {s}.key_head (queue, order_key, head_seq) select 'default', seq::text, seq from {s}.job;
insert into {s}.blocked (seq, key_id, place) select seq, seq % 5000 + 1, seq from {s}.job;
insert into {s}.unique_key (task, unique_key, id, unique_scope, until_at)
select 'greet', seq::text, id, 'period', seq from {s}.job;
insert into {s}.running (seq, lane_id, fence, worker_id, lease_until, lease_span, started_at, attempt, excused,
    interrupted, lost, isolated) select seq, 1, seq, 'w', 1, 1, 1, 1, 0, 0, 0, false from {s}.job limit 2000;
"""


@pytest.fixture(params=["none", "stale", "fresh"])
def statistics(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def connection(backend: Backend, url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(parts_of(url)[0], autocommit=True) as connection:
        yield connection


def _fill(connection: psycopg.Connection, schema: str, statistics: str, number: int) -> None:
    tables = ("queue", "lane", "running", "attempt", *BIG)
    for table in tables:
        connection.execute(f"alter table {schema}.{table} set (autovacuum_enabled = off)".encode())
    if statistics == "stale":  # of a time when the tables were empty
        for table in tables:
            connection.execute(f"analyze {schema}.{table}".encode())
    connection.execute(FILL.format(s=schema, n=number).encode())
    if statistics == "fresh":
        for table in tables:
            connection.execute(f"analyze {schema}.{table}".encode())


def _bad_plans(connection: psycopg.Connection, schema: str) -> list[str]:
    statements = Statements(schema, None)
    bad: list[str] = []
    for mode in ("force_custom_plan", "force_generic_plan"):
        connection.execute(f"set plan_cache_mode = {mode}".encode())
        for name, parameters in HOT.items():
            with psycopg.ClientCursor(connection) as cursor:
                text = cursor.mogrify(statements.text(name), parameters)
                plan = "\n".join(row[0] for row in cursor.execute(f"explain {text}".encode()))
            bad += [f"{name} reads all of {table} ({mode})" for table in BIG if f"Seq Scan on {table}" in plan]
    return bad


async def test_no_hot_statement_reads_a_whole_table(url: str, connection: psycopg.Connection, statistics: str):
    schema = parts_of(url)[1]
    _fill(connection, schema, statistics, 20_000)
    assert _bad_plans(connection, schema) == []


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_no_hot_statement_reads_a_whole_table_of_a_million(
    url: str, connection: psycopg.Connection, statistics: str
):
    schema = parts_of(url)[1]
    _fill(connection, schema, statistics, 1_000_000)
    assert _bad_plans(connection, schema) == []


def _rows_read(
    connection: psycopg.Connection, schema: str, name: str, parameters: dict[str, object], *tables: str
) -> int:
    """Run a statement; return how many rows of tables, of all long ones by default, it has read or thrown away."""
    with psycopg.ClientCursor(connection) as cursor:
        text = cursor.mogrify(Statements(schema, None).text(name), parameters)
        ((found,),) = cursor.execute(f"explain (analyze, format json) {text}".encode()).fetchall()
    nodes, read = [found[0]["Plan"]], 0.0
    while nodes:
        node = nodes.pop()
        nodes += node.get("Plans", [])
        if node.get("Relation Name") in (tables or (*BIG, "failed", "cancelled")):
            read += node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0))
    return int(read)


YOUNG = """
insert into {s}.job (id, lane_id, payload, priority, max_attempts, enqueued_at, turn, payload_bytes)
select gen_random_uuid(), 1, '{{}}', 0, 5, n, n, 2 from generate_series(1, 20000) as n;
insert into {s}.scheduled (run_at, seq, retrying) select {far}, seq, false from {s}.job;
insert into {s}.completed (seq, fence, worker_id, attempt, started_at, finished_at)
select seq, seq, 'w', 1, 1, {far} from {s}.job;
insert into {s}.failed (seq, attempt, lost, finished_at, reason) select seq, 1, 0, {far}, '' from {s}.job;
insert into {s}.cancelled (seq, attempt, lost, finished_at, reason) select seq, 1, 0, {far}, '' from {s}.job;
"""


@pytest.mark.parametrize("name", ["promote", "old_completed", "old_failed", "old_cancelled"])
async def test_what_is_not_yet_due_or_old_is_not_read(url: str, connection: psycopg.Connection, name: str):
    schema = parts_of(url)[1]
    connection.execute(YOUNG.format(s=schema, far=2**62).encode())
    connection.execute(b"set enable_seqscan = off; set enable_bitmapscan = off")  # as in the sessions of a store
    assert _rows_read(connection, schema, name, HOT[name]) == 0


BATCHES = """
insert into {s}.completed (seq, fence, worker_id, attempt, started_at, finished_at, batch)
select seq, seq, 'w', 1, 1, seq / 500,
       case when seq % 500 = 0 then array(select generate_series(seq, seq + 499)) end
from generate_series(500, 50499) as seq;
"""


@pytest.mark.parametrize("limit", [1, 700, 1000])
async def test_a_call_that_prunes_reads_no_more_than_it_may_delete_and_a_batch(
    url: str, connection: psycopg.Connection, limit: int
):
    schema = parts_of(url)[1]
    connection.execute(BATCHES.format(s=schema).encode())
    connection.execute(b"set enable_seqscan = off; set enable_bitmapscan = off")
    assert _rows_read(connection, schema, "old_completed", {"keep": 1, "limit": limit}) <= 100 + limit + 2 * 500


async def test_a_plan_that_was_kept_from_empty_tables_does_not_read_full_ones_whole(
    url: str, connection: psycopg.Connection
):
    location = PostgresLocation.parse(url)
    pools = pools_for_verbs(location)
    runner = PoolRunner(pools, Statements(location.schema, None), location, lambda _: None)
    request = ClaimRequest("w", ("greet",), 500, timedelta(seconds=30))
    for table in ("ready", "job", "running"):  # else the server may chance to plan anew
        connection.execute(f"alter table {location.schema}.{table} set (autovacuum_enabled = off)".encode())
    for _ in range(8):  # from the sixth time on the server keeps one plan for all values
        assert not (await runner.once(lambda: claim(request, {}))).claim.jobs
    connection.execute(FILL.format(s=location.schema, n=20_000).encode())
    async with pools.here.connection() as session:
        assert isinstance(session, FastConnection)
        assert session.prepared
        for (_, types), name in session.prepared.items():
            explain = f"explain execute {name.decode()}({', '.join(['null'] * len(types))})"
            await session.execute(b"set plan_cache_mode = force_generic_plan")
            plan = "\n".join(row[0] for row in await (await session.execute(explain.encode())).fetchall())
            assert "Seq Scan on ready" not in plan
            assert "Tid Scan on ready" in plan
    pools.close()


async def test_counting_up_to_a_limit_reads_no_more_rows_however_many_there_are(
    url: str, connection: psycopg.Connection, statistics: str
):
    schema = parts_of(url)[1]
    _fill(connection, schema, statistics, 20_000)
    connection.execute("set enable_seqscan = off; set enable_bitmapscan = off")  # as in sessions of the store
    assert _rows_read(connection, schema, "queues", {"most": 100}) < 1_000
    assert _rows_read(connection, schema, "waiting_tasks", {}) < 10


@pytest.mark.parametrize("limited", ["queue", "task"])
async def test_a_claim_counts_leases_up_to_the_limit_however_many_there_are(
    url: str, connection: psycopg.Connection, statistics: str, limited: str
):
    schema = parts_of(url)[1]
    _fill(connection, schema, statistics, 20_000)
    known = "update {s}.queue set max_running = 10" if limited == "queue" else LIMITED_TASK
    connection.execute(known.format(s=schema).encode())
    connection.execute("set enable_seqscan = off; set enable_bitmapscan = off")  # as in sessions of the store
    assert _rows_read(connection, schema, "claim", CLAIM, "running") <= 20  # for each lane of the queue
    assert _rows_read(connection, schema, "claim_limits", {}, "running") == 10


LIMITED_TASK = "insert into {s}.task (task, max_running) values ('greet', 10)"
