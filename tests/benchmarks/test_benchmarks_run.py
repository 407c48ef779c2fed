"""The benchmarks run, at a size that proves nothing but that."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.__main__ import main
from benchmarks.bench import Bench, Sizes, Wrong, check
from benchmarks.raw import sqlite as raw_sqlite
from benchmarks.raw.common import Held as RawHeld
from benchmarks.raw.common import uuids
from benchmarks.scenarios import SCENARIOS, chosen
from benchmarks.scenarios.drain import check_raw_done, fill_raw
from benchmarks.stores import SqliteStore, UnknownStoreError, store_of
from click.testing import CliRunner

RECORDS = {
    "enqueue.bulk": ["enqueue.bulk"],
    "enqueue.one": ["enqueue.one"],
    "enqueue.sync_one": ["enqueue.sync_one"],
    "enqueue.hundred": ["enqueue.hundred"],
    "enqueue.unique": ["enqueue.unique"],
    "enqueue.unique_one": ["enqueue.unique_one"],
    "drain.one": ["drain.one", "drain.one.client_cpu"],
    "drain.two": ["drain.two", "drain.two.to_one"],
    "drain.four": [],
    "drain.order_keys": ["drain.order_keys"],
    "drain.beside_limit": ["drain.beside_limit"],
    "drain.held": ["drain.held.300", "drain.held.300.urgent"],
    "drain.held.long": ["drain.held.600", "drain.held.600.urgent"],
    "http.enqueue": ["http.enqueue"],
    "latency": ["latency.p50", "latency.p99"],
    "claim.depth": [
        "claim.depth.ready",
        "claim.depth.unknown_task",
        "claim.depth.paused_queue",
        "claim.depth.over_limit",
    ],
    "memory.drain": ["memory.drain"],
    "memory.waiting": [],
    "effects.batch100": ["effects.batch100"],
    "effects.single10": ["effects.single10"],
    "effects.single32": ["effects.single32"],
    "append.batch": ["append.batch"],
    "consume.batch": ["consume.batch"],
    "streams.depth": ["streams.depth.lag", "streams.depth.fetch"],
    "kafka.produce": ["kafka.produce", "kafka.produce.idempotent", "kafka.produce.sql"],
    "kafka.consume.100": ["kafka.consume.100", "kafka.consume.100.sql"],
    "kafka.consume.500": ["kafka.consume.500", "kafka.consume.500.sql"],
}


SIZES = Sizes(jobs=300, single=10, latency=5, shallow=200, deep=600, claims=2, memory=600, held=300, held_long=600)
UNITS = {"jobs/s", "events/s", "effects/s", "ms", "MB", "µs/job"}


def tiny(directory: Path) -> Bench:
    return Bench(SqliteStore(str(directory)), SIZES, repeats=1)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_runs_and_leaves_records_of_the_right_shape(name: str, tmp_path: Path) -> None:
    records = SCENARIOS[name](tiny(tmp_path))
    on_postgres_only = name.startswith(("effects.", "kafka."))
    assert [record.name for record in records] == ([] if on_postgres_only else RECORDS[name])
    for record in records:
        assert record.store == "sqlite"
        assert record.unit in UNITS
        assert record.raw is not None
        if record.unit == "jobs/s":
            assert record.value > 0
            assert record.ratio == pytest.approx(record.value / record.raw)
    assert list(tmp_path.iterdir()) == []


def test_the_command_keeps_the_figures_with_the_machine_they_were_made_on(tmp_path: Path) -> None:
    target = tmp_path / "kept" / "run.json"
    arguments = ["--jobs", "200", "--repeats", "1", "--only", "enqueue.bulk", "--json", str(target)]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "enqueue.bulk" in result.output
    run = json.loads(target.read_text())
    assert set(run) == {"at", "commit", "jobs", "machine", "peers", "records"}
    assert {"cores", "cpu", "driver", "holdfast", "kernel", "python", "store"} <= set(run["machine"])
    (record,) = run["records"]
    assert set(record) == {"name", "store", "value", "unit", "raw", "ratio"}


def test_an_unknown_scenario_is_refused_with_the_names_there_are() -> None:
    result = CliRunner().invoke(main, ["--only", "nonsense"])
    assert result.exit_code == 2
    assert "enqueue.bulk" in result.output


def test_an_unknown_store_is_refused() -> None:
    with pytest.raises(UnknownStoreError, match="not mongodb:"):
        store_of("mongodb://localhost")


def test_scenarios_are_chosen_by_the_begin_of_their_names() -> None:
    assert list(chosen(("drain",))) == [
        *("drain.one", "drain.two", "drain.four", "drain.order_keys", "drain.beside_limit", "drain.held"),
    ]


def test_a_scenario_that_takes_long_runs_only_if_it_is_named() -> None:
    assert set(SCENARIOS) - set(chosen(())) == {"drain.held.long", "streams.depth"}
    assert list(chosen(("drain.held.long",))) == ["drain.held.long"]


def test_a_lost_job_fails_the_run(tmp_path: Path) -> None:
    bench = tiny(tmp_path)
    with bench.store.fresh() as place:
        fill_raw(bench, place, 10)
        connection = raw_sqlite.connect(place.raw)
        raw_sqlite.drain(connection, "thief")
        connection.execute("delete from done where seq = 3")
        connection.close()
        with pytest.raises(Wrong, match="raw tables"):
            check_raw_done(bench, place, count=10, handled=10)


def test_a_doubled_job_fails_the_run() -> None:
    with pytest.raises(Wrong, match="handlers"):
        check(11, 10, "handlers that were called")


def test_the_yardstick_refuses_a_stale_fence(tmp_path: Path) -> None:
    path = str(tmp_path / "raw.db")
    raw_sqlite.create(path)
    connection = raw_sqlite.connect(path)
    raw_sqlite.bulk(connection, 3)
    fence, rows = raw_sqlite.claim(connection, "worker")
    with pytest.raises(RuntimeError, match="3 of 3 leases were lost"):
        raw_sqlite.finish(connection, fence - 1, [seq for seq, _, _ in rows])
    raw_sqlite.finish(connection, fence, [seq for seq, _, _ in rows])
    assert raw_sqlite.held(path) == RawHeld(ids=3, ready=0, leased=0, done=3)
    connection.close()


def test_the_yardstick_makes_distinct_growing_uuids() -> None:
    ids = uuids(5000)
    assert ids == sorted(set(ids))
    assert {len(job_id) for job_id in ids} == {36}
    assert {job_id[14] for job_id in ids} == {"7"}
