"""What shows a violation outlives whatever goes wrong while it is told; a run that shows less than planned says so."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result
from tests.servers.missing import give_up
from tests.torture.test_ends import report

from holdfast.cli.main import cli
from holdfast.cli.torture import command
from holdfast.cli.torture.signals import unwound_by_signals
from holdfast.errors import ConfigError
from holdfast.torture.report import FaultCount, RunReport
from holdfast.torture.server import find_binaries
from holdfast.torture.server_processes import postmasters

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0
SMALLEST = 4096  # bytes that a pipe holds, at least

# The command, with a verdict in place of the run; as long as it takes to fill any pipe.
COMMAND = """
import signal, sys
from holdfast.cli.main import cli
from holdfast.cli.torture import command
from tests.torture.test_ends import report

def instead(run):
    found = report(is_clean=False, history=str(run.history))
    found.violations = ["it was lost " * 100 for _ in range(1000)]
    return found

command._interruptible = instead
signal.signal(signal.SIGINT, signal.default_int_handler)  # which whoever runs the tests may have ignored
cli(["torture", "--seed", "1", *sys.argv[1:]])
"""


@contextlib.contextmanager
def telling(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Run the command in a process whose output goes into a small pipe."""
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *options],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, SMALLEST)
    with process:
        try:
            yield process
        finally:
            process.kill()


def history_named_in(said: str) -> Path:
    found = re.search(r"is in (\S+?history-[\w-]+)", said)
    assert found, said
    return Path(found[1])


def test_a_violation_that_nobody_reads_keeps_its_exit_code_and_its_evidence(tmp_path):
    with telling(tmp_path, "--url", f"sqlite:///{tmp_path}/run.db") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
        assert process.wait(PATIENCE) == 1
    assert history_named_in(said).is_dir()
    assert "Traceback" not in said


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory whose name leaves room for the path of a socket, and which a server of another user may enter."""
    with tempfile.TemporaryDirectory(prefix="holdfast-") as name:
        Path(name).chmod(0o711)
        yield Path(name)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["nobody reads", "Ctrl-C"])
def test_the_data_of_a_server_that_show_a_violation_outlive_the_telling_of_it(short_path, how):
    try:
        find_binaries()
    except ConfigError as error:
        give_up("PostgreSQL", str(error))
    with telling(short_path, "--server", "postgresql") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        if how == "Ctrl-C":
            while "it was lost" not in process.stdout.readline():
                pass
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGINT)
        else:
            process.stdout.close()
        said = process.stderr.read()
        assert process.wait(PATIENCE) == (130 if how == "Ctrl-C" else 1), said
    (data,) = short_path.glob("holdfast-torture-*/data")
    assert str(data) in said
    assert (data / "PG_VERSION").exists()
    assert not (data / "postmaster.pid").exists(), "it was stopped in order"
    assert postmasters(data) == []
    assert history_named_in(said).is_dir()


Torture = Callable[..., Result]


@pytest.fixture
def torture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Torture:
    """Run the command with a report in place of the run."""

    def run(told: Callable[[Path], RunReport], *options: str) -> Result:
        def instead(run: Any) -> RunReport:
            return told(run.history)

        monkeypatch.setattr(command, "_interruptible", instead)
        monkeypatch.setattr("holdfast.torture.calibrate.fitting_lease", lambda: 2.0)
        return CliRunner().invoke(cli, ["torture", "--url", f"sqlite:///{tmp_path}/run.db", "--seed", "1", *options])

    return run


def short(history: Path, *, is_clean: bool = True) -> RunReport:
    """Return a report of a run whose faults could not all be done."""
    faults = {"kill": FaultCount(done=3, wanted=5, meaning="kill -9"), "stop": FaultCount(done=2, wanted=2, meaning="")}
    found = report(is_clean=is_clean, history=str(history))
    return msgspec.structs.replace(found, reached=False, faults=faults)


def test_a_clean_run_that_could_not_do_all_its_faults_is_not_fine_and_says_which(torture):
    done = torture(short)
    assert done.exit_code == 4
    assert "Clean, but the run did less than planned" in done.stdout
    assert "kill 3 of 5" in done.stdout
    assert "stop" not in done.stdout.partition("not reached")[2]


def test_a_clean_run_that_could_not_do_all_its_faults_says_so_to_programs(torture):
    done = torture(short, "--json")
    assert done.exit_code == 4
    assert json.loads(done.stdout)["reached"] is False
    assert json.loads(done.stdout)["is_clean"] is True
    assert "kill 3 of 5" in done.stderr


def test_a_violation_counts_more_than_faults_that_could_not_be_done(torture):
    done = torture(lambda history: short(history, is_clean=False))
    assert done.exit_code == 1
    assert "Clean" not in done.stdout


@pytest.mark.parametrize(("is_clean", "code"), [(True, 4), (False, 1)])
def test_a_report_that_can_no_longer_be_written_is_told_after_the_verdict(torture, tmp_path, is_clean, code):
    folder = tmp_path / "reports"
    folder.mkdir()

    def ends(history: Path) -> RunReport:
        folder.rmdir()
        return report(is_clean=is_clean, history=str(history))

    done = torture(ends, "--report", str(folder / "report.json"))

    assert done.exit_code == code
    assert "the report could not be written" in done.stderr
    assert ("The run found violations" in done.stdout) is not is_clean


def test_looking_whether_a_report_can_be_written_leaves_an_old_one_as_it_was(torture, tmp_path):
    file = tmp_path / "report.json"
    file.write_text("old")

    def ends(history: Path) -> RunReport:
        assert file.read_text() == "old"
        return report(is_clean=True, history=str(history))

    assert torture(ends, "--report", str(file)).exit_code == 0
    assert json.loads(file.read_text())["is_clean"] is True


# --- signals ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def heard() -> Generator[None]:
    """Signals do what they do by default, though whoever runs the tests may have them ignored, as nohup does."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_while_a_run_ends_skips_nothing_and_what_is_left_is_named(heard, tmp_path, monkeypatch, second):
    ended: list[str] = []

    async def run(*_: Any, **__: Any) -> RunReport:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(PATIENCE)
        finally:
            os.kill(os.getpid(), second)
            await asyncio.sleep(0.01)  # as what waits for processes to end
            ended.append("everything")
        raise AssertionError

    monkeypatch.setattr("holdfast.torture.run.torture", run)
    monkeypatch.setattr("holdfast.torture.calibrate.fitting_lease", lambda: 2.0)
    history = tmp_path / "history"
    done = CliRunner().invoke(cli, ["torture", "--url", f"sqlite:///{tmp_path}/run.db", "--history", str(history)])

    assert ended == ["everything"]
    assert done.exit_code == 130
    assert str(history) in done.stderr
    assert f"{tmp_path}/run.db is left as it is" in done.stderr


def test_the_first_signal_unwinds_and_those_that_follow_do_not(heard):
    ended: list[str] = []
    with contextlib.suppress(KeyboardInterrupt), unwound_by_signals():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
        finally:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                os.kill(os.getpid(), number)
            ended.append("everything")
    assert ended == ["everything"]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_no_signal_breaks_off_the_end_of_a_command_that_ends_by_itself(heard):
    with unwound_by_signals() as unwinding:
        unwinding.has_begun = True
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
