"""The benchmarks run on PostgreSQL, at a size that proves nothing but that, and leave the database as it was."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing

import msgspec
import psycopg
import pytest
from benchmarks.bench import Bench
from benchmarks.postgres_store import PostgresStore
from benchmarks.raw import postgres as raw_postgres
from benchmarks.scenarios import SCENARIOS
from benchmarks.scenarios.drain import check_raw_done, fill_raw
from tests.benchmarks.test_benchmarks_run import RECORDS, SIZES, UNITS
from tests.servers.kafka import new_prefix
from tests.servers.missing import give_up
from tests.servers.postgres import NoServerError, server_url

MORE = ["client_cpu", "server_cpu", "wal", "commits", "dead_rows"]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    try:
        found = server_url()
    except NoServerError as error:
        give_up("PostgreSQL", str(error))
    before = _leftovers(found)
    yield found
    assert _leftovers(found) == before


@pytest.fixture
def bench(url: str) -> Bench:
    return Bench(PostgresStore(url), SIZES, repeats=1)


def _leftovers(url: str) -> set[str]:
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "select nspname from pg_namespace union all select datname from pg_database"
        ).fetchall()
    return {name for (name,) in rows if name.startswith("holdfast_bench_")}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_runs_and_leaves_records_of_the_right_shape(name: str, bench: Bench) -> None:
    if name.startswith("kafka."):
        bench = msgspec.structs.replace(bench, events=new_prefix())
    records = SCENARIOS[name](bench)
    found = [record.name for record in records]
    if name == "drain.one":
        assert found == ["drain.one", *(f"drain.one.{what}" for what in MORE)]
    else:
        assert found == RECORDS[name]
    for record in records:
        assert record.store == "postgresql"
        assert record.unit in UNITS | {"bytes/job", "commits/job", "rows"}


def test_the_data_behind_the_url_is_never_touched(url: str) -> None:
    given = f"{url}?schema=somebodys&install=never&application_name=mine"
    with PostgresStore(given).fresh() as place:
        conninfo, schema = raw_postgres.split(place.url)
        assert schema.startswith("holdfast_bench_")
        assert "install" not in place.url
        assert conninfo.endswith("?application_name=mine")


def test_a_foreign_program_gets_a_database_of_its_own(url: str) -> None:
    store = PostgresStore(url)
    with store.foreign() as target:
        assert _leftovers(url)
        with psycopg.connect(target, autocommit=True) as connection:
            connection.execute("create table anything (n integer)")
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(target)


def test_the_yardstick_refuses_a_stale_fence(bench: Bench) -> None:
    async def steal(target: str) -> None:
        conninfo, schema = raw_postgres.split(target)
        async with await psycopg.AsyncConnection.connect(
            conninfo, autocommit=True, options=f"-c search_path={schema}"
        ) as connection:
            rows = await raw_postgres.Claims(connection, "worker").next()
            seqs, fence = [row[0] for row in rows], rows[0][4]
            with pytest.raises(RuntimeError, match="3 of 3 leases were lost"):
                await raw_postgres.finish(connection, fence - 1, seqs)
            await raw_postgres.finish(connection, fence, seqs)

    with bench.store.fresh() as place:
        fill_raw(bench, place, 3)
        asyncio.run(steal(place.raw))
        check_raw_done(bench, place, count=3, handled=3)


def test_a_snapshot_that_is_held_keeps_dead_rows(bench: Bench, url: str) -> None:
    with bench.store.fresh() as place:
        fill_raw(bench, place, 10)
        with bench.store.snapshot(place), closing(raw_postgres.connect(place.raw)) as connection:
            connection.execute("delete from ready")
            notices: list[str] = []
            connection.add_notice_handler(
                lambda notice: notices.append(notice.message_detail or notice.message_primary or "")
            )
            connection.execute("vacuum verbose ready")
            assert any("10 are dead but not yet removable" in text or "10 dead" in text for text in notices), notices
