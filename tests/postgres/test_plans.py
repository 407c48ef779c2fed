"""The plan of each hot statement keeps to its indexes, whatever the planner knows of the tables."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from tests.servers.postgres import parts_of

from holdfast.backends.postgres.statements import Statements
from holdfast.store.backend import Backend

BIG = ("job", "ready", "scheduled", "completed")
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
HOT: dict[str, dict[str, object]] = {
    "claim": CLAIM,
    "complete": {"seqs": SOME, "fences": SOME, "results": None},
    "extend_many": {"seqs": SOME, "fences": SOME, "span": 1},
    "lock_leases": {"seqs": SOME, "fences": SOME},
    "promote": {"limit": 500},
    "next_due": {},
    "ended_before": {"seqs": SOME, "fences": SOME, "outcomes": ["completed"] * 500},
    "set_turns": {"seqs": SOME, "turns": SOME},
    "describe_jobs": {"seqs": SOME},
    "old_completed": {"after": 0, "keep": 1, "limit": 500},
    "prune_jobs": {"seqs": SOME},
}
FILL = """
insert into {s}.queue (queue) values ('default');
insert into {s}.lane (queue, task) values ('default', 'greet'), ('default', 'other');
insert into {s}.job (id, lane_id, payload, priority, max_attempts, enqueued_at, turn, payload_bytes)
select gen_random_uuid(), 1, '{{}}', 0, 5, n, n, 2 from generate_series(1, {n}) as n;
insert into {s}.ready (lane_id, turn, seq, payload_bytes) select 1, turn, seq, 2 from {s}.job;
insert into {s}.scheduled (run_at, seq, retrying) select turn, seq, false from {s}.job;
insert into {s}.completed (seq, fence, worker_id, attempt, started_at, finished_at)
select seq, seq, 'w', 1, 1, 1 from {s}.job;
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
