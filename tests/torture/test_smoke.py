"""A short run on each store, all of it real: processes, kills, stops, cut connections, a server that is killed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.servers.missing import give_up
from tests.servers.mysql import program_of as mysql_program_of
from tests.servers.redis import program_of

from holdfast.errors import ConfigError
from holdfast.torture.server import find_binaries

ROOT = Path(__file__).parents[2]
LONGEST = 280.0

pytestmark = pytest.mark.timeout(300)


def run(folder: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    """Run the command; return its exit code, the report, and what it said."""
    report = folder / "report.json"
    command = ["holdfast", "torture", "--seed", "1", "--jobs", "500", "--report", str(report), *options]
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )
    assert report.exists(), done.stdout + done.stderr
    return done.returncode, json.loads(report.read_text()), done.stdout + done.stderr


def assert_clean(code: int, report: dict[str, Any], said: str) -> None:
    assert code == 0, said
    assert report["is_clean"], said
    assert report["violations"] == []
    assert report["is_drained"]
    assert report["jobs"] >= 500
    assert set(report["states"]) <= {"completed", "failed", "cancelled"}
    assert report["states"]["completed"] > 300
    assert report["faults"]["kill"]["done"] >= 1
    assert re.search("Nothing was lost and nothing was doubled", said)
    assert report["verdict"]["figures"]["direct claims"] > 0
    assert report["verdict"]["figures"]["leases reset"] > 0
    judged = {tally["invariant"]: tally["checked"] for tally in report["verdict"]["tallies"]}
    assert not [code for code, cases in judged.items() if not cases], f"invariants that judged nothing: {judged}"


def test_nothing_is_lost_or_doubled_on_sqlite_while_workers_are_killed_and_stopped(tmp_path):
    code, report, said = run(tmp_path, "--url", f"sqlite:///{tmp_path}/torture.db")

    assert_clean(code, report, said)
    assert report["effects"] > 50
    assert not (tmp_path / "torture.db").exists(), "a clean run leaves nothing behind"


def test_nothing_is_lost_or_doubled_on_postgresql_while_its_server_is_killed_too(tmp_path):
    try:
        find_binaries()
    except ConfigError as error:
        give_up("PostgreSQL", str(error))

    code, report, said = run(tmp_path, "--server", "postgresql")

    assert_clean(code, report, said)
    assert report["effects"] > 50
    assert report["versions"]["fsync"] == "on"
    assert report["cuts_inside_commit"] >= 1
    assert_the_server_suffered(report)


def test_nothing_is_lost_or_doubled_on_redis_while_its_server_is_killed_too(tmp_path):
    program_of("valkey")

    code, report, said = run(tmp_path, "--server", "redis")

    assert_clean(code, report, said)
    assert (report["versions"]["appendonly"], report["versions"]["appendfsync"]) == ("yes", "always")
    assert report["effects"] > 50
    assert_the_server_suffered(report)


@pytest.mark.parametrize("flavour", ["mariadb", pytest.param("mysql", marks=pytest.mark.slow)])
def test_nothing_is_lost_or_doubled_on_mysql_while_its_server_is_killed_too(tmp_path, flavour):
    mysql_program_of(flavour)

    code, report, said = run(tmp_path, "--server", flavour)

    assert_clean(code, report, said)
    assert report["effects"] > 50
    assert report["versions"]["innodb_flush_log_at_trx_commit"] == "1"
    assert report["cuts_inside_commit"] >= 1
    assert_the_server_suffered(report)


def assert_the_server_suffered(report: dict[str, Any]) -> None:
    assert report["faults"]["restart"]["done"] >= 1
    assert report["cuts_at_statements"] >= 1


# --- streams ----------------------------------------------------------------------------------------------------------


def assert_clean_streams(code: int, report: dict[str, Any], said: str) -> None:
    assert code == 0, said
    assert report["is_clean"], said
    assert report["violations"] == []
    assert report["is_drained"]
    assert report["unit"] == "events"
    assert report["jobs"] >= 500
    assert report["states"]["waiting"] == 0
    assert report["effects"] > report["jobs"]
    assert report["faults"]["kill"]["done"] >= 1
    tallies = {tally["invariant"]: tally["checked"] for tally in report["verdict"]["tallies"]}
    assert all(tallies[code] > 0 for code in ("I1", "I3", "I15", "I16", "I17", "I18", "I20"))


@pytest.mark.slow
def test_every_event_takes_effect_once_and_in_order_on_sqlite_while_nodes_are_killed_and_stopped(tmp_path):
    code, report, said = run(tmp_path, "--streams", "--url", f"sqlite:///{tmp_path}/torture.db")

    assert_clean_streams(code, report, said)
    assert not (tmp_path / "torture.db").exists(), "a clean run leaves nothing behind"


@pytest.mark.slow
def test_every_event_takes_effect_once_and_in_order_on_postgresql_while_its_server_is_killed_too(tmp_path):
    try:
        find_binaries()
    except ConfigError as error:
        give_up("PostgreSQL", str(error))

    code, report, said = run(tmp_path, "--streams", "--server", "postgresql")

    assert_clean_streams(code, report, said)
    assert report["versions"]["fsync"] == "on"
    assert report["cuts_inside_commit"] >= 1
    assert_the_server_suffered(report)


@pytest.mark.slow
@pytest.mark.parametrize("flavour", ["mariadb", pytest.param("mysql", marks=pytest.mark.torture)])
def test_every_event_takes_effect_once_and_in_order_on_mysql_while_its_server_is_killed_too(tmp_path, flavour):
    mysql_program_of(flavour)

    code, report, said = run(tmp_path, "--streams", "--server", flavour)

    assert_clean_streams(code, report, said)
    assert report["versions"]["innodb_flush_log_at_trx_commit"] == "1"
    assert report["cuts_inside_commit"] >= 1
    assert_the_server_suffered(report)
