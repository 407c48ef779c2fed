"""The benchmarks run on Redis, at a size that proves nothing but that."""

from __future__ import annotations

import pytest
from benchmarks.bench import Bench
from benchmarks.raw import redis as raw_redis
from benchmarks.raw.common import Held as RawHeld
from benchmarks.record import record
from benchmarks.run import Plan, aim_of, run
from benchmarks.scenarios import LACKS, SCENARIOS
from benchmarks.stores import store_of
from tests.benchmarks.test_benchmarks_run import RECORDS, SIZES
from tests.servers.redis import connection_of, server_url

ON_REDIS = [name for name in SCENARIOS if not name.startswith(LACKS["redis"])]


def tiny() -> Bench:
    return Bench(store_of(server_url("valkey")), SIZES, repeats=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ON_REDIS)
def test_a_scenario_runs_on_redis_and_leaves_nothing_there(name: str) -> None:
    bench = tiny()
    records = SCENARIOS[name](bench)
    more = {
        "drain.one": ["drain.one.server_cpu"],
        "memory.waiting": ["memory.waiting", "memory.running", "memory.completed"],
    }
    assert [record.name for record in records] == [*RECORDS[name], *more.get(name, [])]
    assert all(record.store == "redis" and record.raw is not None for record in records)
    assert list(connection_of(server_url("valkey")).scan_iter(match="*bench_*")) == []


def test_what_the_store_lacks_is_not_run() -> None:
    report = run(Plan(server_url("valkey"), 100, 1, ("enqueue.one", "append", "effects", "drain.held")), lambda _: None)
    assert [record.name for record in report.records] == ["enqueue.one"]


@pytest.mark.parametrize(
    ("server", "aim", "is_met"),
    [("redis valkey 9.1.2, libc", "≤ 268 bytes/job", False), ("redis redis 7.0.15, jemalloc", "≤ 376 bytes/job", True)],
)
def test_the_bytes_of_a_job_are_aimed_at_by_server(server: str, aim: str, is_met: bool) -> None:
    figure = record("memory.waiting", "redis", 300.0, unit="bytes/job", raw=None)
    assert aim_of(figure, server) == (aim, is_met)


def test_the_hand_written_loop_completes_each_job_once_and_none_under_a_stale_fence() -> None:
    bench = tiny()
    with bench.store.fresh() as place:
        loop = raw_redis.connect(place.raw)
        raw_redis.bulk(loop, 700)
        fence, ids, payloads = loop.claim("one")
        assert (len(ids), len(set(ids)), len(payloads)) == (500, 500, 500)
        assert raw_redis.held(place.raw) == RawHeld(700, 200, 500, 0)
        with pytest.raises(RuntimeError, match="500 of 500 leases were lost"):
            loop.finish(fence + 1, ids)
        loop.finish(fence, ids)
        assert raw_redis.held(place.raw) == RawHeld(700, 200, 0, 500)
        assert raw_redis.drain(loop, "two").handled == 200
        assert raw_redis.span(place.raw) > 0
        loop.close()
