"""How a run ends for the one who typed the command: what is told, what is kept, and with which exit code."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast.cli.main import cli
from holdfast.cli.torture import command
from holdfast.errors import HoldfastError
from holdfast.torture.failure import FaultFailed
from holdfast.torture.history import HistoryDamaged
from holdfast.torture.report import RunReport


def report(*, is_clean: bool, history: str) -> RunReport:
    """Return a report of nothing."""
    return RunReport(
        run="smoke-1", seed=1, profile="smoke", lease=2.0, store="sqlite", url="sqlite:///x", versions={}, machine={},
        is_clean=is_clean, is_drained=True, reached=True, jobs=0, states={}, effects=0, attempts_without_completion={},
        most_attempts=0, faults={}, links_cut=0, cuts_inside_commit=0, cuts_at_statements=0, workers_started=0,
        workers_died=0, seconds={"faults": 1.0, "drain": 1.0}, jobs_per_second=0.0, recoveries={},
        latency={}, latency_all={}, bounds={}, history=history,
    )  # fmt: skip


@pytest.fixture
def torture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run the command with `ends` in place of the run itself."""

    def run(ends: Callable[[Path], RunReport], *options: str) -> Any:
        def instead(run: Any) -> RunReport:
            return ends(run.history)

        monkeypatch.setattr(command, "_interruptible", instead)
        monkeypatch.setattr("holdfast.torture.calibrate.fitting_lease", lambda: 2.0)
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        monkeypatch.setattr("tempfile.tempdir", None)
        return CliRunner().invoke(
            cli, ["torture", "--url", f"sqlite:///{tmp_path}/täglich.db", "--seed", "1", *options]
        )

    return run


def test_the_json_of_a_path_that_is_not_ascii_can_be_read(torture, tmp_path):
    wanted = tmp_path / "verläufe"
    done = torture(lambda at: report(is_clean=True, history=str(at)), "--json", "--history", str(wanted))
    assert done.exit_code == 0
    assert json.loads(done.stdout)["history"] == str(wanted)


def test_a_clean_run_names_no_history_that_is_gone(torture):
    done = torture(lambda at: report(is_clean=True, history=str(at)), "--json")
    assert json.loads(done.stdout)["history"] == ""


def test_a_bad_run_keeps_its_history(torture):
    done = torture(lambda at: report(is_clean=False, history=str(at)), "--json")
    assert done.exit_code == 1
    assert Path(json.loads(done.stdout)["history"]).is_dir()


@pytest.mark.parametrize("error", [HistoryDamaged("no room"), FaultFailed("no room"), HoldfastError("no room")])
def test_a_run_without_a_verdict_says_why_and_where_its_history_is_and_is_no_violation(torture, error):
    kept: list[Path] = []

    def ends(history: Path) -> RunReport:
        kept.append(history)
        raise error

    done = torture(ends)
    assert done.exit_code == 4
    assert "no room" in done.stderr
    assert str(kept[0]) in done.stderr
    assert kept[0].is_dir()


@pytest.fixture
def heard() -> Generator[None]:
    """Signals do what they do by default, though whoever runs the tests may have them ignored, as nohup does."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_beside_the_event_loop_unwinds_the_command(torture, heard, number):
    def ends(_history: Path) -> RunReport:
        os.kill(os.getpid(), number)
        signal.pause()
        raise AssertionError

    done = torture(ends)
    assert done.exit_code == 130
    assert "holdfast-history" in done.stderr
