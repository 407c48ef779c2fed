"""The loop by hand over Kafka judges as its scenarios do: what is doubled, or moved by another, fails the run."""

from __future__ import annotations

import os
from contextlib import closing

import pytest
from benchmarks.bench import Wrong
from benchmarks.postgres_store import PostgresStore
from benchmarks.raw import kafka as raw
from benchmarks.raw import postgres as raw_postgres
from benchmarks.run import Plan, run
from benchmarks.scenarios.kafka import check_topic
from tests.servers.kafka import new_prefix
from tests.servers.postgres import server_url


def test_a_doubled_record_fails_the_run() -> None:
    with raw.topics(new_prefix()) as topics:
        topic = raw.create(topics, "bench", 2)
        raw.Batches(topics, topic, in_transactions=True).write([("stream-1", 1), ("stream-2", 2)])
        found = raw.ids(topics, topic, 2)
    check_topic(found, 2)
    with pytest.raises(Wrong, match="records in the topic"):
        check_topic([*found, found[0]], 2)
    with pytest.raises(Wrong, match="records in the topic"):
        check_topic(found, 3)


def test_the_loop_refuses_a_position_that_another_has_moved() -> None:
    with raw.topics(new_prefix()) as topics, PostgresStore(server_url()).fresh() as place:
        topic = raw.create(topics, "bench", 1)
        raw.Batches(topics, topic, in_transactions=False).write([("stream-1", 1), ("stream-2", 2)])
        with closing(raw_postgres.connect(place.raw)) as connection:
            connection.execute(f"create schema if not exists {raw_postgres.split(place.raw)[1]}")
        raw.prepare(place.raw, 1)
        with closing(raw_postgres.connect(place.raw)) as connection:
            connection.execute("update raw_place set pos = 1")
            with pytest.raises(RuntimeError, match="moved by another consumer"):
                raw.consume(topics, topic, place.raw, partitions=1, batch=10, count=2)
            assert connection.execute("select count(*) from raw_effect").fetchone() == (0,)


def test_other_scenarios_do_not_have_their_events_in_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_EVENTS_URL", "kafka://127.0.0.1:1/")
    report = run(Plan(None, 500, 1, ("append.batch",)), lambda _: None)
    assert [record.name for record in report.records] == ["append.batch"]
    assert "HOLDFAST_EVENTS_URL" not in os.environ
