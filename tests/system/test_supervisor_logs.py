"""The joined logs of a supervisor with real processes: whole lines, bounded memory, readers that fail."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest
from tests.system.harness import BUSY, SOON
from tests.system.supervised_program import PROLOGUE, started


@pytest.fixture
def start(tmp_path):
    with contextlib.ExitStack() as programs:
        yield lambda body: programs.enter_context(started(tmp_path, body))


def test_lines_stay_whole_carry_one_prefix_and_the_last_needs_no_end(start):
    program = start(
        """
def run(seat):
    for n in range(200):
        os.write(1, b"a" * 300)
        os.write(2, b"b" * 300 + b"\\n")
    print(f"[w{seat.index}] already marked")
    sys.stdout.write("no end of line")
    return 0

supervise(3, run)
"""
    )
    assert program.end() == 0
    whole = "a" * 300 + "b" * 300
    for label in ("w1", "w2", "w3"):
        mine = [line.removeprefix(f"[{label}] ") for line in program.seen if line.startswith(f"[{label}] ")]
        assert mine == [whole] * 200 + ["already marked", "no end of line"]


def test_what_a_killed_child_wrote_last_is_not_lost(start):
    program = start(
        """
def run(seat):
    if (HERE / "once").exists():
        return 0
    (HERE / "once").touch()
    os.write(1, b"x" * 30_000 + b"\\nlast words")
    os.kill(os.getpid(), signal.SIGKILL)

supervise(1, run)
"""
    )
    assert program.end() == 0
    assert "[w1] " + "x" * 30_000 in program.seen
    assert "[w1] last words" in program.seen


FLOOD = """
def run(seat):
    if seat.index == 1:
        while True:
            os.write(1, b"flood " * 2000 + b"\\n")
    wait_to_be_asked()

def release(worker_id, reason):
    with (HERE / "released").open("a") as file:
        file.write(worker_id + "\\n")

supervise(2, run, release=release)
"""


def test_a_flood_from_one_child_does_not_starve_the_others_or_grow_memory(start):
    program = start(FLOOD)
    pid = program.ready("w2")["w2"]
    before = psutil.Process(program.process.pid).memory_info().rss
    os.kill(pid, signal.SIGTERM)
    program.line(r"\[w2\] asked to end")
    for _ in range(1000):  # 12 MB
        program.line("flood")
    assert psutil.Process(program.process.pid).memory_info().rss - before < 8_000_000


def test_a_reader_that_stands_still_does_not_stop_the_supervision(start, tmp_path):
    program = start(FLOOD)
    pid = program.ready("w2")["w2"]
    program.reading.clear()
    supervisor = psutil.Process(program.process.pid)
    while _grows(supervisor):  # until the supervisor has nowhere left to write
        pass
    killed = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    released = tmp_path / "released"
    while not (released.exists() and released.read_text().startswith("w2-")):
        assert time.monotonic() - killed < 1.0 + BUSY, "not released within a second"
        time.sleep(0.01)
    program.reading.set()
    program.ready("w2")


def test_a_reader_that_has_gone_does_not_stop_the_supervision(tmp_path, start):
    script = tmp_path / "gone.py"
    script.write_text(
        PROLOGUE
        + """
def run(seat):
    once = HERE / "once"
    if once.exists():
        return 0
    once.touch()
    print("hello")
    raise ValueError

supervise(1, run)
"""
    )
    read, write = os.pipe()
    os.close(read)
    process = subprocess.Popen([sys.executable, str(script)], stdout=write)
    os.close(write)
    assert process.wait(SOON) == 0


def _grows(process: psutil.Process) -> bool:
    """Tell whether the process has worked in the last tenth of a second."""
    before = process.cpu_times()
    time.sleep(0.1)
    return process.cpu_times() != before


def test_the_lines_of_the_supervisor_have_time_and_level_like_those_of_its_workers(start):
    program = start(
        """
def run(seat):
    return 0

supervise(1, run)
"""
    )
    assert program.end() == 0
    (line,) = [line for line in program.seen if line.startswith("[supervisor] ")]
    assert re.fullmatch(
        r"\[supervisor\] 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO     holdfast\.worker: w1-\w+ exited with code 0",
        line,
    )


def test_the_lines_of_the_supervisor_follow_the_format_and_the_level_of_the_program(start):
    program = start(
        """
import logging
logging.basicConfig(level=logging.WARNING, format="<%(levelname)s> %(message)s")

def run(seat):
    if (HERE / "once").exists():
        return 0
    (HERE / "once").touch()
    return 5

supervise(1, run)
"""
    )
    assert program.end() == 0
    (line,) = [line for line in program.seen if line.startswith("[supervisor] ")]
    assert re.fullmatch(r"\[supervisor\] <WARNING> w1-\w+ exited with code 5; restarting in .* s", line)
