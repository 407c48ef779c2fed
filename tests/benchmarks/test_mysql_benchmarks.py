"""The benchmarks run on MariaDB, at a size that proves nothing but that, and leave the server as it was."""

from __future__ import annotations

import asyncio

import pytest
from benchmarks.bench import Bench
from benchmarks.raw import mysql as raw_mysql
from benchmarks.raw.common import Held as RawHeld
from benchmarks.scenarios import SCENARIOS
from benchmarks.scenarios.drain import fill_raw
from benchmarks.stores import UnknownStoreError, store_of
from tests.benchmarks.test_benchmarks_run import RECORDS, SIZES
from tests.servers import mysql

COSTS = ["client_cpu", "server_cpu", "wal", "commits", "lock_waits", "deadlocks"]
FOUND = {
    **RECORDS,
    "drain.one": ["drain.one", *(f"drain.one.{cost}" for cost in COSTS)],
    "drain.four": ["drain.four", "drain.four.lock_waits", "drain.four.deadlocks"],
}
# Each by a way of its own through the hand-written loops or the store; the others differ above both.
RUN = [
    "enqueue.bulk",
    "enqueue.one",
    "drain.one",
    "drain.four",
    "drain.held",
    "claim.depth",
    "latency",
    "append.batch",
    "consume.batch",
]


def tiny() -> Bench:
    return Bench(store_of(mysql.server_url()), SIZES, repeats=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUN)
def test_a_scenario_runs_on_mariadb_and_leaves_nothing_there(name: str) -> None:
    records = SCENARIOS[name](tiny())
    assert [record.name for record in records] == FOUND[name]
    assert all(record.store == "mysql" and record.raw is not None for record in records)
    assert mysql.run(mysql.server_url(), "show databases like 'holdfast\\_bench%'") == []


def test_the_hand_written_loop_completes_each_job_once_and_none_under_a_stale_fence() -> None:
    bench = tiny()

    async def work(target: str) -> None:
        connection = await raw_mysql.connect_async(target)
        taken = await raw_mysql.Claims(connection, "one").next()
        assert len({job_id for _, job_id, _ in taken.rows}) == len(taken.rows) == 500
        assert raw_mysql.held(target) == RawHeld(700, 200, 500, 0)
        with pytest.raises(RuntimeError, match="of 500 leases some were lost"):
            await raw_mysql.finish(connection, taken.fence + 1, taken.stretches)
        await raw_mysql.finish(connection, taken.fence, taken.stretches)
        connection.close()

    with bench.store.fresh() as place:
        fill_raw(bench, place, 700)
        asyncio.run(work(place.raw))
        assert raw_mysql.held(place.raw) == RawHeld(700, 200, 0, 500)
        assert raw_mysql.span(place.raw) > 0


def test_a_url_with_settings_is_refused() -> None:
    with pytest.raises(UnknownStoreError, match="over TCP"):
        store_of("mysql://root@localhost/shop?socket=/run/mysqld/mysqld.sock")
