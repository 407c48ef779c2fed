"""`holdfast demo` as a person runs it: workers are killed, the run is interrupted, the store is doctored."""

from __future__ import annotations

import contextlib
import random
import re
import shutil
import signal
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
from tests.system.cli_program import Cli
from tests.system.demo_program import ON_EACH, SMALL, WITHIN, Demo, SqliteDemo, demo_on, told

from holdfast.cli.demo.conductor import DemoBroken, DemoConductor, Killings


@pytest.fixture(params=ON_EACH)
def demo(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Demo]:
    with demo_on(request.param, tmp_path) as demo:
        yield demo


@pytest.fixture
def in_file(tmp_path: Path) -> SqliteDemo:
    return SqliteDemo(tmp_path)


@pytest.fixture(scope="module")
def finished_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a finished demo, to be copied."""
    demo = SqliteDemo(tmp_path_factory.mktemp("finished"))
    demo.run(*SMALL, "--kill", "0", "--jobs", "100")
    with contextlib.closing(sqlite3.connect(demo.file)) as connection:
        connection.execute("pragma wal_checkpoint(truncate)")
    return demo.file


@pytest.fixture
def finished(demo: Demo, request: pytest.FixtureRequest) -> Demo:
    if isinstance(demo, SqliteDemo):
        shutil.copy(request.getfixturevalue("finished_file"), demo.file)
    else:
        demo.run(*SMALL, "--kill", "0", "--jobs", "100")
    return demo


@pytest.fixture
def finished_in_file(in_file: SqliteDemo, finished_file: Path) -> SqliteDemo:
    shutil.copy(finished_file, in_file.file)
    return in_file


def test_a_run_with_a_killed_worker_ends_with_every_work_done_once(demo):
    output = demo.run(*SMALL, "--kill", "1")

    rows = told(output)
    assert rows["produced"][:1] == rows["completed"][:1] == ["500"]
    assert rows["doubled"] == rows["lost"] == ["0", "0", "ok"]
    assert re.search(r"worker \d \(pid \d+\) was killed (while it held \d+ jobs|between two batches)", output)
    assert "although a worker was killed" in output
    assert demo.effects() == 500


def test_in_a_pipe_there_are_plain_lines_and_no_escapes(in_file):
    output = in_file.run(*SMALL, "--kill", "0")

    assert re.search(r"^producing 500 of 500 \(100%\)", output, re.MULTILINE)
    assert re.search(r"^consuming 500 of 500 \(100%\)", output, re.MULTILINE)
    assert "\x1b" not in output


def test_the_same_seed_gives_the_same_tries_whoever_is_killed(in_file):
    first = told(in_file.run(*SMALL, "--kill", "1"))
    second = told(in_file.run(*SMALL, "--kill", "0", "--workers", "1"))

    for row in ("1", "2", "3", "exhausted", "retried", "failed", "most attempts used"):
        assert first.get(row) == second.get(row)


@pytest.mark.slow
def test_an_interrupted_run_goes_on_where_it_stopped(demo):
    args = ("--jobs", "4000", "--workers", "2", "--batch-size", "20", "--work-timeout", "3", "--seed", "5")
    process = demo.start(*args, "--kill", "0")
    until = time.monotonic() + WITHIN
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(sqlite3.OperationalError, psycopg.Error):  # the tables are not there yet
            if demo.effects() > 500:
                break
        time.sleep(0.01)
    workers = psutil.Process(process.pid).children()
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=WITHIN)

    assert process.returncode == 130, output
    assert "to continue" in output
    assert psutil.wait_procs(workers, timeout=5)[1] == []
    before = demo.effects()
    assert 0 < before < 4000
    assert "Unfinished" in demo.run("verify", code=1)

    output = demo.run("--kill", "0", "--workers", "2")
    assert "Continuing the unfinished run" in output
    assert told(output)["completed"] == ["4,000", "4,000", "ok"]
    assert demo.effects() == 4000


@pytest.mark.slow
def test_workers_end_when_the_demo_itself_is_killed(in_file):
    process = in_file.start("--jobs", "50000", "--workers", "2", "--batch-size", "10", "--kill", "0")
    until = time.monotonic() + WITHIN
    while len(workers := psutil.Process(process.pid).children()) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    process.kill()
    process.communicate()

    assert len(workers) == 2
    assert psutil.wait_procs(workers, timeout=20)[1] == []


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("insert into holdfast_demo_effect select * from holdfast_demo_effect where job_id = {id}", "more than once"),
        ("delete from holdfast_demo_effect where job_id = {id}", "lost"),
        ("update holdfast_demo_effect set attempt = attempt + 1 where job_id = {id}", "ledger does not confirm it"),
        ("update holdfast_demo_effect set job_id = 'a-stranger' where job_id = {id}", "lost"),
    ],
    ids=["doubled", "deleted", "another attempt", "another work"],
)
def test_a_doctored_store_is_found_out_and_the_work_is_named(finished, statement, words):
    finished.run("verify")
    job_id = finished.change(statement)

    output = finished.run("verify", code=1)

    (line,) = [line for line in output.splitlines() if line.startswith("Bad: ") and words in line]
    assert job_id in line
    assert "exactly once" not in output


def test_an_id_in_a_doctored_store_cannot_act_on_the_terminal(finished_in_file):
    finished_in_file.change(
        "update holdfast_demo_effect set job_id = 'x' || char(27) || '[31m[red]' where job_id = {id}"
    )

    output = finished_in_file.run("verify", code=1)

    assert "\x1b" not in output
    assert r"x\x1b[31m[red]" in output


@pytest.mark.slow
def test_after_a_finished_run_the_next_begins_anew_and_an_unfinished_one_only_when_told(finished):
    assert told(finished.run("--jobs", "50", "--kill", "0", "--workers", "1"))["produced"][0] == "50"

    finished.run("produce", "--jobs", "30")
    output = finished.run("produce", "--jobs", "40")
    assert "continues with its own plan" in output
    assert "30 jobs produced" in output
    assert "40 jobs produced" in finished.run("produce", "--jobs", "40", "--fresh")


def test_the_steps_can_be_taken_one_by_one(demo):
    assert "start one with `holdfast demo produce`" in demo.run("verify", code=69)
    assert "start one with `holdfast demo produce`" in demo.run("consume", code=69)
    demo.run("produce", "--jobs", "200", "--success-rate", "0.5", "--max-attempts", "2", "--seed", "1")
    assert "200 jobs still to be consumed" in demo.run("verify", code=1)
    assert " stopped: " in demo.run("consume", "--name", "mine")
    rows = told(demo.run("verify"))
    assert int(rows["failed"][0]) > 0
    assert rows["failed"][2] == "fits"
    assert "add --yes" in demo.run("clean", code=2)
    assert demo.effects() > 0
    assert "was removed" in demo.run("clean", "--yes")
    assert list(demo.directory.iterdir()) == []
    assert "no demo to remove" in demo.run("clean", "--yes")


@pytest.mark.slow
@pytest.mark.parametrize("point", ["before_effect", "after_effect", "before_commit", "after_commit"])
def test_a_worker_that_is_killed_at_any_point_of_its_batch_does_no_harm(demo, point):
    demo.run("produce", "--jobs", "100", "--seed", "1", "--work-timeout", "1")
    # The first transaction of a worker reads the plan; the third is its second batch.
    demo.run("consume", "--batch-size", "20", code=-signal.SIGKILL, failpoints=f"{point}=kill@3")
    first = demo.effects()
    demo.run("consume")

    rows = told(demo.run("verify"))
    assert 0 < first < 100
    assert rows["completed"] == ["100", "100", "ok"]
    # A server may get the COMMIT together with the completions, if all jobs of the batch are completed.
    killed = {"after_commit": {"0"}, "before_commit": {"20"} if isinstance(demo, SqliteDemo) else {"0", "20"}}
    assert rows["attempts killed"][0] in killed.get(point, {"20"})


@pytest.mark.slow
async def test_workers_that_cannot_live_end_the_demo_with_their_last_words(tmp_path):
    killings = Killings(0, 10, random.Random(1))
    conductor = DemoConductor(
        f"sqlite:///{tmp_path / 'missing' / 'demo.db'}",
        workers=1,
        batch_size=10,
        killings=killings,
        ended_before=0,
        on_event=lambda _: None,
    )

    with pytest.raises(DemoBroken, match=r"crashed 5 times, last with exit code 1: .*does not exist"):
        await conductor.run(lambda: None, every=0.1)


def test_a_lease_too_short_for_a_batch_and_a_store_in_memory_are_refused(in_file):
    assert "too short" in in_file.run("--work-timeout", "100ms", code=2)
    assert "SQLite file" in in_file.run("--url", "sqlite://", code=78)


@pytest.mark.parametrize("width", [80, 120])
def test_on_a_terminal_there_is_a_picture_as_wide_as_the_terminal(tmp_path, width):
    shown = Cli(tmp_path).in_terminal("demo", *SMALL, "--kill", "1", width=width)

    assert "\x1b[" in shown
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert re.search(r"worker +pid +done .* killed +state", plain)
    lines = [line.split("\r")[-1] for line in plain.splitlines()]
    assert [line for line in lines if len(line) > width and not line.startswith("Store: ")] == []
    assert "Every completed job took effect exactly once" in " ".join(plain.split())
