"""`holdfast bench`: where it finds the benchmarks, what it refuses, and what it shows of a run."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from benchmarks.record import Peer, Record, Report, machine, record
from click.testing import CliRunner, Result

import holdfast
from benchmarks import run as benchmarks_run
from holdfast.cli import bench as bench_module
from holdfast.cli.main import cli
from holdfast.errors import ConfigError

FIELDS = ["name", "store", "value", "unit", "raw", "ratio"]


def command(*args: str, code: int = 0) -> Result:
    result = CliRunner().invoke(cli, ["bench", *args], env={"HOLDFAST_URL": ""})
    assert result.exit_code == code, f"{result.exit_code}\n{result.output}\n{result.exception!r}"
    return result


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[benchmarks_run.Plan]:
    """Put a run of fixed figures in the place of the real one; return the plans that it was given."""
    given: list[benchmarks_run.Plan] = []

    def run(plan, tell) -> Report:
        given.append(plan)
        tell("drain.one")
        records = [
            record("drain.one", "sqlite", 1234.5, unit="jobs/s", raw=2469.0),
            Record("nothing.to.compare", "sqlite", 7.0, "ms", None, None),
        ]
        peers = [Peer("quick", "1.2"), Peer("broken", "", "npm ended with code 1: no such package")]
        return Report("2026-11-15T00:00:00", "abc", plan.jobs, machine("sqlite 3", "sqlite3"), records, peers)

    monkeypatch.setattr(benchmarks_run, "run", run)
    return given


def test_the_benchmarks_are_those_of_the_checkout_that_the_package_runs_from():
    assert bench_module.checkout() == Path(holdfast.__file__).resolve().parents[2]


def test_an_installed_package_without_a_checkout_says_where_benchmarks_come_from(tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "holdfast"
    package.mkdir(parents=True)
    monkeypatch.setattr(bench_module, "holdfast", SimpleNamespace(__file__=str(package / "__init__.py")))
    with pytest.raises(ConfigError, match="part of a checkout"):
        bench_module.checkout()
    assert "make setup" in command(code=78).stderr


def test_a_source_tree_without_benchmarks_is_no_checkout(tmp_path, monkeypatch):
    package = tmp_path / "src" / "holdfast"
    package.mkdir(parents=True)
    monkeypatch.setattr(bench_module, "holdfast", SimpleNamespace(__file__=str(package / "__init__.py")))
    with pytest.raises(ConfigError):
        bench_module.checkout()


def test_the_options_make_the_plan(plans):
    command(
        "--url", "sqlite:///x.db", "--jobs", "500", "--only", "drain", "--only", "latency", "--repeats", "5", "--peers"
    )
    assert plans == [benchmarks_run.Plan("sqlite:///x.db", 500, 5, ("drain", "latency"), peers=True)]


def test_kafka_is_named_by_an_option_or_the_environment(plans, monkeypatch):
    command("--events", "kafka://here:9092/")
    monkeypatch.setenv("HOLDFAST_EVENTS_URL", "kafka://there:9092/")
    command()
    assert [plan.events for plan in plans] == ["kafka://here:9092/", "kafka://there:9092/"]


def test_a_pipe_gets_one_line_for_each_record_with_tabs(plans):
    lines = command().stdout.splitlines()
    assert lines[0].split("\t") == FIELDS
    assert lines[1].split("\t") == ["drain.one", "sqlite", "1234.5", "jobs/s", "2469", "0.5"]
    assert lines[2].split("\t") == ["nothing.to.compare", "sqlite", "7", "ms", "", ""]


def test_json_is_an_object_of_the_machine_and_the_records(plans):
    document = json.loads(command("--json").stdout)
    assert {"machine", "records", "peers"} <= set(document)
    assert {"cores", "cpu", "kernel", "python", "store", "driver", "holdfast"} <= set(document["machine"])
    assert list(document["records"][0]) == FIELDS
    assert document["records"][1]["raw"] is None


def test_a_peer_that_was_not_measured_is_named_with_the_reason(plans):
    stderr = command("--peers").stderr
    assert "broken was not measured: npm ended with code 1: no such package" in stderr
    assert "quick" not in stderr


def test_a_run_that_lost_a_job_is_wrong(plans, monkeypatch):
    def lose(plan, tell) -> Report:
        raise benchmarks_run.Wrong("handlers that were called: found 9, wanted 10")

    monkeypatch.setattr(benchmarks_run, "run", lose)
    assert "found 9, wanted 10" in command(code=1).stderr


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("--only", "nonsense"), 2, "enqueue.bulk"),
        (("--url", "mongodb://localhost"), 78, "not mongodb:"),
        (("--url", "sqlite:////no/such/folder/x.db"), 78, "no directory /no/such/folder"),
        (("--url", "postgresql://nobody@127.0.0.1:1/x"), 69, "cannot be reached"),
        (("--jobs", "1"), 2, "--jobs"),
        (("--repeats", "0"), 2, "--repeats"),
    ],
)
def test_what_cannot_be_run_is_refused_with_a_code_of_its_own(args, code, words):
    assert words in command(*args, code=code).stderr


def test_a_password_on_the_command_line_is_warned_of_and_never_shown(plans):
    stderr = command("--url", "postgresql://me:sesame@localhost/x").stderr
    assert "password" in stderr
    assert "sesame" not in stderr
