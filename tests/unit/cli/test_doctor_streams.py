"""What the doctor finds out about consumers and nodes."""

from __future__ import annotations

import json
import sqlite3

import pytest
from tests.unit.cli.conftest import grant, park

MINUTE = 60_000_000
OF_STREAMS = ["consumers", "consumer lag", "paused consumers", "parked events", "nodes"]


@pytest.fixture
def aged(tmp_path):
    """Let time pass for nodes and events, by moving what they told into the past."""

    def age(table: str, column: str, minutes: int) -> None:
        with sqlite3.connect(tmp_path / "jobs.db") as connection:
            connection.execute(f"update {table} set {column} = {column} - ?", (minutes * MINUTE,))  # noqa: S608
        connection.close()

    return age


def _checks(shop):
    checks = json.loads(shop.run("doctor", "--json").stdout)["checks"]
    return {check["check"]: (check["verdict"], check["finding"], check["remedy"] or "") for check in checks}


def test_a_store_without_consumers_has_one_line_about_them(shop):
    shop.run("schema", "install")
    checks = _checks(shop)
    assert checks["consumers"] == ("ok", "none", "")
    assert not set(OF_STREAMS[1:]) & set(checks)


def test_where_consumers_are_well_every_check_is_ok(streams):
    grant(streams)
    checks = _checks(streams)
    assert list(checks)[-5:] == OF_STREAMS
    assert {checks[name][0] for name in OF_STREAMS} == {"ok"}
    assert checks["consumers"][1] == "1, with a live node for each that has events left"
    assert checks["consumer lag"][1].startswith("3 events left; billing is furthest behind, by ")
    assert checks["nodes"][1] == "1 live"


def test_events_left_for_a_consumer_without_a_living_node_are_a_warning(streams, aged):
    verdict, finding, remedy = _checks(streams)["consumers"]
    assert verdict == "warn"
    assert finding.startswith("no live node runs billing (3 events left, ")
    assert "`holdfast worker run`" in remedy
    grant(streams)
    aged("holdfast_node", "heartbeat_at", 1)
    checks = _checks(streams)
    assert checks["consumers"][0] == "warn"
    assert checks["nodes"][0] == "warn"
    assert "0 live, 1 silent: node-a" in checks["nodes"][1]


def test_a_consumer_that_has_no_node_and_nothing_left_is_no_warning(streams):
    streams.run("consumer", "reset", "billing", "--to", "end", "--yes")
    checks = _checks(streams)
    assert checks["consumers"][0] == "ok"
    assert checks["consumer lag"][1] == "none"


def test_a_consumer_that_is_long_behind_though_a_node_runs_it_is_a_warning(streams, aged):
    grant(streams)
    aged("holdfast_event", "recorded_at", 4)
    assert _checks(streams)["consumer lag"][0] == "ok"
    aged("holdfast_event", "recorded_at", 1)
    verdict, finding, remedy = _checks(streams)["consumer lag"]
    assert verdict == "warn"
    assert finding.startswith("billing is 5m")
    assert "`holdfast consumer list --partitions`" in remedy


def test_a_paused_consumer_is_warned_of_as_paused_and_not_as_behind(streams, aged):
    streams.run("consumer", "pause", "billing")
    aged("holdfast_event", "recorded_at", 9)
    checks = _checks(streams)
    assert checks["paused consumers"] == ("warn", "billing", "`holdfast consumer resume billing` resumes it.")
    assert (checks["consumers"][0], checks["consumer lag"][0]) == ("ok", "ok")


def test_parked_events_are_warned_of_with_consumer_and_count(streams):
    park(streams)
    verdict, finding, remedy = _checks(streams)["parked events"]
    assert (verdict, finding) == ("warn", "billing 2")
    assert "`holdfast consumer parked billing`" in remedy
