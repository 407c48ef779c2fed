"""`holdfast demo` as a person runs it: consumers are killed, the run is interrupted, the store is doctored."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from tests.system.cli_program import Cli

from holdfast.cli.demo.conductor import Conductor, ConsumerBroken, Killings

PROGRAM = (sys.executable, "-m", "holdfast", "demo")
SMALL = ("--jobs", "500", "--consumers", "2", "--batch-size", "20", "--work-timeout", "1", "--seed", "5")
WITHIN = 50.0


class Demo:
    """A directory, and demos run in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.file = directory / "holdfast-demo.db"
        # A URL in the environment, as somebody has who runs Holdfast in earnest: the demo must not touch it.
        self.real_store = directory / "real.db"
        self.environment = {**os.environ, "HOLDFAST_URL": f"sqlite:///{self.real_store}", "PYTHONUNBUFFERED": "1"}

    def run(self, *args: str, code: int = 0, failpoints: str = "") -> str:
        done = subprocess.run(
            [*PROGRAM, *args],
            cwd=self.directory,
            env={**self.environment, "HOLDFAST_FAILPOINTS": failpoints},
            capture_output=True,
            text=True,
            timeout=WITHIN,
            check=False,
        )
        assert done.returncode == code, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def start(self, *args: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*PROGRAM, *args],
            cwd=self.directory,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def change(self, statement: str) -> str:
        """Doctor the store, and return the id of the work that was touched."""
        with contextlib.closing(sqlite3.connect(self.file, isolation_level=None)) as connection:
            work_id: str = connection.execute("select work_id from holdfast_demo_effect limit 1").fetchone()[0]
            connection.execute(statement, {"id": work_id})
            return work_id

    def effects(self) -> int:
        with contextlib.closing(sqlite3.connect(self.file)) as connection:
            count: int = connection.execute("select count(*) from holdfast_demo_effect").fetchone()[0]
            return count


def told(output: str) -> dict[str, list[str]]:
    """Return the rows of the verdict, as a program reads them in a pipe."""
    return {line.split("\t")[0]: line.split("\t")[1:] for line in output.splitlines() if "\t" in line}


@pytest.fixture
def demo(tmp_path) -> Demo:
    return Demo(tmp_path)


@pytest.fixture
def finished(demo: Demo) -> Demo:
    demo.run(*SMALL, "--kill", "0", "--jobs", "100")
    return demo


def test_a_run_with_a_killed_consumer_ends_with_every_work_done_once(demo):
    output = demo.run(*SMALL, "--kill", "1")

    rows = told(output)
    assert rows["produced"][:1] == rows["completed"][:1] == ["500"]
    assert rows["doubled"] == rows["lost"] == ["0", "0", "ok"]
    assert re.search(r"consumer \d \(pid \d+\) was killed (while it held \d+ works|between two batches)", output)
    assert "though a consumer was killed" in output
    assert demo.effects() == 500
    assert not demo.real_store.exists()


def test_in_a_pipe_there_are_plain_lines_and_no_escapes(finished):
    output = finished.run(*SMALL, "--fresh", "--kill", "0")

    assert re.search(r"^producing 500 of 500 \(100%\)", output, re.MULTILINE)
    assert re.search(r"^consuming 500 of 500 \(100%\)", output, re.MULTILINE)
    assert "\x1b" not in output


def test_the_same_seed_gives_the_same_tries_whoever_is_killed(demo):
    first = told(demo.run(*SMALL, "--kill", "1"))
    second = told(demo.run(*SMALL, "--kill", "0", "--consumers", "1", "--fresh"))

    for row in ("1", "2", "3", "given up", "retried", "failed", "most tries of a work"):
        assert first.get(row) == second.get(row)


@pytest.mark.slow
def test_an_interrupted_run_goes_on_where_it_stopped(demo):
    args = ("--jobs", "6000", "--consumers", "2", "--batch-size", "10", "--work-timeout", "1", "--seed", "5")
    process = demo.start(*args, "--kill", "0")
    consumers: list[psutil.Process] = []
    give_up = time.monotonic() + WITHIN
    while time.monotonic() < give_up and process.poll() is None:
        if demo.file.exists():
            with contextlib.suppress(sqlite3.OperationalError):  # the tables are not there yet
                if demo.effects() > 1000:
                    break
        time.sleep(0.01)
    consumers = psutil.Process(process.pid).children()
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=WITHIN)

    assert process.returncode == 130, output
    assert "goes on from there" in output
    assert psutil.wait_procs(consumers, timeout=5)[1] == []
    before = demo.effects()
    assert 0 < before < 6000
    assert "Unfinished" in demo.run("verify", code=1)

    output = demo.run("--kill", "0", "--consumers", "2")
    assert "Going on with the run that the store holds" in output
    assert told(output)["completed"] == ["6,000", "6,000", "ok"]
    assert demo.effects() == 6000


@pytest.mark.slow
def test_consumers_end_when_the_demo_itself_is_killed(demo):
    process = demo.start("--jobs", "50000", "--consumers", "2", "--batch-size", "10", "--kill", "0")
    give_up = time.monotonic() + WITHIN
    while len(consumers := psutil.Process(process.pid).children()) < 2 and time.monotonic() < give_up:
        time.sleep(0.05)
    process.kill()
    process.communicate()

    assert len(consumers) == 2
    assert psutil.wait_procs(consumers, timeout=20)[1] == []


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("insert into holdfast_demo_effect select * from holdfast_demo_effect where work_id = :id", "more than once"),
        ("delete from holdfast_demo_effect where work_id = :id", "lost"),
        ("update holdfast_demo_effect set attempt = attempt + 1 where work_id = :id", "ledger does not say so"),
        ("update holdfast_demo_effect set work_id = 'a-stranger' where work_id = :id", "lost"),
    ],
    ids=["doubled", "deleted", "another attempt", "another work"],
)
def test_a_doctored_store_is_found_out_and_the_work_is_named(finished, statement, words):
    finished.run("verify")
    work_id = finished.change(statement)

    output = finished.run("verify", code=1)

    (line,) = [line for line in output.splitlines() if line.startswith("Bad: ") and words in line]
    assert work_id in line
    assert "exactly once" not in output


def test_an_id_in_a_doctored_store_cannot_act_on_the_terminal(finished):
    finished.change("update holdfast_demo_effect set work_id = 'x' || char(27) || '[31m[red]' where work_id = :id")

    output = finished.run("verify", code=1)

    assert "\x1b" not in output
    assert r"x\x1b[31m[red]" in output


def test_a_finished_run_is_told_as_such_and_not_begun_again(finished):
    output = finished.run("--jobs", "300")

    assert "is finished" in output
    assert told(output)["produced"][0] == "100"
    assert told(finished.run("--jobs", "300", "--fresh", "--kill", "0"))["produced"][0] == "300"


def test_the_steps_can_be_taken_one_by_one(demo):
    assert "makes one" in demo.run("verify", code=69)
    demo.run("produce", "--jobs", "200", "--success-rate", "0.5", "--max-attempts", "2", "--seed", "1")
    assert "200 works still to be done" in demo.run("verify", code=1)
    assert "has ended: " in demo.run("consume", "--name", "mine")
    rows = told(demo.run("verify"))
    assert int(rows["failed"][0]) > 0
    assert rows["failed"][2] == "fits"
    assert "is gone" in demo.run("clean")
    assert list(demo.directory.iterdir()) == []
    assert "nothing to clean" in demo.run("clean")


@pytest.mark.parametrize("point", ["before_effect", "after_effect", "before_commit", "after_commit"])
def test_a_consumer_that_is_killed_at_any_point_of_its_batch_does_no_harm(demo, point):
    demo.run("produce", "--jobs", "100", "--seed", "1", "--work-timeout", "1")
    # The first transaction of a consumer reads the plan; the third is its second batch.
    demo.run("consume", "--batch-size", "20", code=-signal.SIGKILL, failpoints=f"{point}=kill@3")
    first = demo.effects()
    demo.run("consume")

    rows = told(demo.run("verify"))
    assert 0 < first < 100
    assert rows["completed"] == ["100", "100", "ok"]
    assert rows["attempts lost"][0] == ("0" if point == "after_commit" else "20")


@pytest.mark.slow
async def test_consumers_that_cannot_live_end_the_demo_with_their_last_words(tmp_path):
    killings = Killings(0, 10, random.Random(1))
    conductor = Conductor(
        f"sqlite:///{tmp_path / 'missing' / 'demo.db'}",
        consumers=1,
        batch_size=10,
        killings=killings,
        ended_before=0,
        told=lambda _: None,
    )

    with pytest.raises(ConsumerBroken, match=r"ended 5 times by itself, last with exit code 1: .*does not exist"):
        await conductor.run(lambda: None, every=0.1)


def test_a_lease_too_short_for_a_batch_and_a_store_in_memory_are_refused(demo):
    assert "too short" in demo.run("--work-timeout", "100ms", code=2)
    assert "SQLite file" in demo.run("--url", "sqlite://", code=78)


def test_cleaning_leaves_a_database_that_holds_anything_else(finished):
    with contextlib.closing(sqlite3.connect(finished.file, isolation_level=None)) as connection:
        connection.execute("create table customer (name text)")

    assert "tables are gone" in finished.run("clean")

    with contextlib.closing(sqlite3.connect(finished.file)) as connection:
        names = {name for (name,) in connection.execute("select name from sqlite_schema where type = 'table'")}
    assert "customer" in names
    assert not [name for name in names if name.startswith("holdfast_demo")]


@pytest.mark.parametrize("width", [80, 120])
def test_on_a_terminal_there_is_a_picture_as_wide_as_the_terminal(tmp_path, width):
    shown = Cli(tmp_path).in_terminal("demo", *SMALL, "--kill", "1", width=width)

    assert "\x1b[" in shown
    assert "killed, restarted" in shown
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    lines = [line.split("\r")[-1] for line in plain.splitlines()]
    assert [line for line in lines if len(line) > width and not line.startswith("sqlite:")] == []
    assert "Every work that was completed took effect exactly once" in " ".join(plain.split())
