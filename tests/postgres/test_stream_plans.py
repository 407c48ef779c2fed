"""The plan of each hot statement of streams keeps to its indexes, whatever the planner knows of the tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from uuid import UUID

import psycopg
import pytest
from tests.servers.postgres import parts_of

from holdfast.backends.postgres.statements import Statements
from holdfast.store.backend import Backend

pytestmark = pytest.mark.new_schema  # one that was used before has statistics, and empty pages

EVENTS = 200_000
BIG = ("event", "parked", "trimmed_stream")
TABLES = ("category", "head", "consumer", "allocation", "node", *BIG)
ID = str(UUID(int=1))
SHARE: dict[str, object] = {"consumer": "billing", "category": "orders", "partition_id": 3, "generation": 1}
PARKED: dict[str, object] = {"consumer": "billing", "category_id": 1, "partition_id": 3}
PLACE: dict[str, object] = {"category_id": 1, "partition_id": 3}
PARK: dict[str, object] = {
    "consumer": ["billing"],
    "category_id": [1],
    "partition_id": [3],
    "position": [5],
    "stream": ["order-7"],
    "failure": [None],
    "attempts": [0],
    "retrying": [False],
}
MANY = [*range(1, 501)]
HOT: dict[str, dict[str, object]] = {
    "lock_heads": {"category_ids": [1, 1], "partition_ids": [0, 3]},
    "append_event": {
        **PLACE,
        "event_id": ID,
        "stream": "order-7",
        "event_name": "placed",
        "payload": "{}",
        "headers": None,
        "expected": 3,
    },
    "append_events": {
        "ids": [str(UUID(int=number)) for number in MANY],
        "category_ids": [1] * 500,
        "partition_ids": [number % 8 for number in MANY],
        "streams": [f"order-{number}" for number in MANY],
        "names": ["placed"] * 500,
        "payloads": ["{}"] * 500,
        "headers": [None] * 500,
        "expected": [None] * 500,
    },
    "known_events": {"ids": [str(UUID(int=number)) for number in MANY]},
    "stream_versions": {"category_ids": [1] * 500, "streams": [f"order-{number}" for number in MANY]},
    "fetch": {**SHARE, "after": 100, "limit": 100, "max_bytes": 10**7},
    "commit_position": {**SHARE, "after": 100, "position": 101, "begins_trial": False, "clears": True},
    "lock_share": {**SHARE, "milliseconds": 1000},
    "wait_for_share": SHARE,
    "parked_among": {**PARKED, "streams": ["order-7"], "handled": [1, 2]},
    "retrying_among": {**PARKED, "streams": ["order-7"]},
    "retrying_at": {**PARKED, "positions": [5]},
    "unpark": PARK,
    "park_by_position": PARK,
    "park_by_version": PARK,
    "list_consumers": {},
    "list_parked": {"consumer": "billing", "after_category": "", "after_partition": -1, "after": -1, "limit": 50},
    "read_partition": {"category": "orders", "partition_id": 3, "after": 100, "limit": 100},
    "read_stream": {"category": "orders", "stream": "order-7", "after": 0, "limit": 100},
    "read_stream_backwards": {"category": "orders", "stream": "order-7", "after": 2**62, "limit": 100},
    "stream_version": {"category": "orders", "stream": "order-7"},
    "position_at": {"category": "orders", "partition_id": 3, "at": 12_345},
    "version_at": {"category": "orders", "stream": "order-7", "at": 12_345},
    "readers_of_partition": {**PLACE, "category": "orders"},
    "position_of_version": {"category_id": 1, "stream": "order-7", "after": 3},
    "note_trimmed_streams": {**PLACE, "after": 0, "last": 500},
    "drop_trimmed_parked": {**PLACE, "after": 0, "last": 500},
    "trim_events": {**PLACE, "after": 0, "last": 500},
}
# What a statement may touch of a table of 200,000 events, in pages.
PAGES = {
    "fetch": 1_000,
    "list_consumers": 2_000,
    "read_partition": 500,
    "read_stream": 500,
    "stream_version": 50,
    "position_at": 500,
    "version_at": 300,
    "stream_versions": 10_000,
}
FILL = """
insert into {s}.category (category, partitions) values ('orders', 8);
insert into {s}.head (category_id, partition_id, position_id, recorded_at)
select 1, number, {n} / 8, {n} from generate_series(0, 7) as number;
insert into {s}.event (
    category_id, partition_id, position_id, stream, version, event_id, event_name, payload, recorded_at
)
select 1, n % 8, n / 8 + 1, 'order-' || n % 2000, n / 2000 + 1, gen_random_uuid(), 'placed', '{{}}', n
from generate_series(0, {n} - 1) as n;
insert into {s}.trimmed_stream (category_id, stream, version)
select 1, 'gone-' || n, 5 from generate_series(1, 20000) as n;
insert into {s}.consumer (consumer, category) values ('billing', 'orders');
insert into {s}.consumer (consumer, category, stream) values ('auditing', 'orders', 'order-7');
insert into {s}.allocation (consumer, category_id, partition_id, generation, state, owner, incarnation, position_id,
    since_at) select 'billing', 1, number, 1, 'granted', 'n', 'i', 100, 1 from generate_series(0, 7) as number;
insert into {s}.allocation (consumer, category_id, partition_id, generation, position_id, since_at)
values ('auditing', 1, 7, 1, 3, 1);
insert into {s}.parked (consumer, category_id, partition_id, position_id, event_id, stream, parked_at)
select case when n <= 800 then 'billing' else 'shipping' end, 1, n % 8, n / 8, gen_random_uuid(), 'order-' || n % 20, 1
from generate_series(1, 20000) as n;
"""


@pytest.fixture(params=["none", "stale", "fresh"])
def statistics(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def connection(backend: Backend, url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(parts_of(url)[0], autocommit=True) as connection:
        yield connection


def _fill(connection: psycopg.Connection, schema: str, statistics: str) -> None:
    for table in TABLES:
        connection.execute(f"alter table {schema}.{table} set (autovacuum_enabled = off)".encode())
    if statistics == "stale":  # of a time when the tables were empty
        _analyze(connection, schema)
    connection.execute(FILL.format(s=schema, n=EVENTS).encode())
    if statistics == "fresh":
        _analyze(connection, schema)


def _analyze(connection: psycopg.Connection, schema: str) -> None:
    for table in TABLES:
        connection.execute(f"analyze {schema}.{table}".encode())


def _plan(connection: psycopg.Connection, schema: str, name: str, how: str) -> str:
    with psycopg.ClientCursor(connection) as cursor:
        text = cursor.mogrify(Statements(schema, None).text(name), HOT[name])
        return "\n".join(row[0] for row in cursor.execute(f"explain {how} {text}".encode()))


def _pages(plan: str) -> int:
    """Return how many pages the whole statement has touched: the first figures are those of the topmost node."""
    found = re.search(r"Buffers: shared(.*)", plan)
    return sum(map(int, re.findall(r"(?:hit|read)=(\d+)", found[1]))) if found else 0


@pytest.mark.timeout(240)
async def test_no_hot_statement_of_streams_reads_a_whole_table(
    url: str, connection: psycopg.Connection, statistics: str
):
    schema = parts_of(url)[1]
    _fill(connection, schema, statistics)
    plans = {name: _plan(connection, schema, name, "") for name in HOT}
    read = [(name, table) for name, plan in plans.items() for table in BIG if f"Seq Scan on {table}" in plan]
    assert read == []

    touched = {name: _pages(_plan(connection, schema, name, "(analyze, buffers)")) for name in PAGES}
    assert {name: pages for name, pages in touched.items() if pages > PAGES[name]} == {}
    assert all(touched.values())
