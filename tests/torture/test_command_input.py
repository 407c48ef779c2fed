"""What `holdfast torture` says to input that cannot work, and to machines that refuse: no traceback, and the remedy."""

from __future__ import annotations

import asyncio
import errno
import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result

from holdfast.cli.main import cli
from holdfast.cli.torture import command
from holdfast.cli.torture.view import TortureView
from holdfast.errors import HoldfastError, OutcomeUnknown, StoreUnavailable
from holdfast.torture.report import RunReport
from holdfast.torture.run import no_verdict
from holdfast.torture.target import target_of


def torture(*options: str) -> Result:
    return CliRunner().invoke(cli, ["torture", *options])


def assert_refused(done: Result, *words: str, code: int = 78) -> None:
    assert done.exit_code == code, done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


@pytest.mark.parametrize("options", [(), ("--streams",)], ids=["jobs", "streams"])
@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("foo", ("'foo' is not the URL of a store", "sqlite:///scratch.db")),
        ("me:hunter2@host/db", ("this is not the URL of a store",)),
        ("mongodb://localhost", ("not mongodb://",)),
        ("postgresql://[::1/db", ("cannot be read", "must look like")),
        ("postgresql://me@127.0.0.1:http/db", ("the port 'http' cannot be", "5432")),
        ("postgresql://me@127.0.0.1:99999/db", ("the port '99999' cannot be",)),
        ("postgresql://me@127.0.0.1/db?port=x", ("the port 'x' cannot be",)),
    ],
)
def test_a_url_that_cannot_be_is_refused_with_one_that_could(url, words, options):
    assert_refused(torture("--url", url, *options), *words)


@pytest.mark.parametrize("options", [(), ("--streams",)], ids=["jobs", "streams"])
@pytest.mark.parametrize("text", ["plain words\n", "plain words\n" * 1000])
def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path, text, options):
    file = tmp_path / "notes.txt"
    file.write_text(text)

    assert_refused(torture("--url", f"sqlite:///{file}", *options), "is not a SQLite database", "name another file")

    assert file.read_text() == text
    assert list(tmp_path.iterdir()) == [file]


def test_a_directory_is_no_database(tmp_path):
    assert_refused(torture("--url", f"sqlite:///{tmp_path}"), "is not a file", "name the database file")


def test_a_database_in_a_directory_that_does_not_exist_is_refused(tmp_path):
    assert_refused(torture("--url", f"sqlite:///{tmp_path}/no/run.db"), "is no directory", "create it")


def test_a_history_that_cannot_be_made_is_refused_before_the_run(tmp_path):
    (tmp_path / "file").touch()

    done = torture("--url", f"sqlite:///{tmp_path}/run.db", "--history", str(tmp_path / "file" / "history"))

    assert_refused(done, "cannot write the history", "choose another --history directory")


@pytest.mark.parametrize("place", ["no/report.json", "file/report.json"])
def test_a_report_that_cannot_be_written_is_refused_before_the_run(tmp_path, place):
    (tmp_path / "file").touch()

    done = torture("--url", f"sqlite:///{tmp_path}/run.db", "--report", str(tmp_path / place))

    assert_refused(done, "cannot be written", "choose another file", code=2)
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


TROUBLE = [
    OSError(errno.ENOSPC, "No space left on device"),
    sqlite3.OperationalError("database or disk is full"),
    psycopg.errors.DiskFull("could not extend file"),
    StoreUnavailable("the store is gone"),
    OutcomeUnknown("the store is gone"),
]


@pytest.mark.parametrize("error", TROUBLE, ids=lambda error: type(error).__name__)
def test_what_the_store_or_the_machine_refuses_ends_a_run_without_a_verdict(tmp_path, monkeypatch, error):
    kept: list[Path] = []

    def refused(run: Any) -> RunReport:
        kept.append(run.history)
        raise error

    monkeypatch.setattr(command, "_interruptible", refused)
    monkeypatch.setattr("holdfast.torture.calibrate.fitting_lease", lambda: 2.0)

    done = torture("--url", f"sqlite:///{tmp_path}/run.db", "--history", str(tmp_path / "history"))

    assert_refused(
        done, "the run has no verdict", str(error), str(kept[0]), f"{tmp_path}/run.db is left as it is", code=4
    )


@pytest.mark.parametrize("error", [BrokenPipeError(), SystemExit(1)], ids=lambda error: type(error).__name__)
def test_a_run_that_nobody_watches_any_more_is_no_violation(tmp_path, monkeypatch, error):
    ended: list[str] = []

    async def run(*_: Any, **__: Any) -> RunReport:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)  # as what waits for processes to end
            ended.append("everything")
        raise AssertionError

    def refresh(_view: TortureView) -> None:
        raise error

    monkeypatch.setattr("holdfast.torture.run.torture", run)
    monkeypatch.setattr(TortureView, "refresh", refresh)
    monkeypatch.setattr("holdfast.torture.calibrate.fitting_lease", lambda: 2.0)

    done = torture("--url", f"sqlite:///{tmp_path}/run.db", "--history", str(tmp_path / "history"))

    assert_refused(done, "stdout was closed", str(tmp_path / "history"), "run.db is left as it is", code=4)
    assert ended == ["everything"]


def test_a_server_that_finds_no_room_comes_to_no_verdict(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))

    assert_refused(torture("--server", "postgresql"), "the server could not be started", code=4)


def test_a_fault_in_holdfast_stays_one():
    fault = KeyError("x")
    assert no_verdict(fault) is fault


def test_an_error_of_the_driver_leaves_the_target_as_one_of_holdfast(tmp_path):
    target = target_of(f"sqlite:///{tmp_path}/empty.db")

    with pytest.raises(StoreUnavailable, match="no such table"):
        target.jobs.effects_seen(0)
    with pytest.raises(HoldfastError, match="no such table"):
        list(target.jobs.effects())
