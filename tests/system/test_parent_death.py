"""Children that cannot outlive their supervisor, and orphans that it takes in: real processes, really killed."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

import pytest
from tests.system.harness import SOON
from tests.system.supervised_program import started, wait_until_gone


@pytest.fixture
def start(tmp_path):
    with contextlib.ExitStack() as programs:
        yield lambda body: programs.enter_context(started(tmp_path, body))


TWO_WAITING = """
def run(seat):
    print(f"I am {seat.worker_id}")
    wait_to_be_asked()

supervise(2, run)
"""


def test_children_and_their_children_die_with_a_killed_supervisor(start):
    program = start(
        """
def run(seat):
    subprocess.Popen(["sleep", "1000"])
    subprocess.Popen([sys.executable, "-c", "import signal; signal.signal(15, signal.SIG_IGN); signal.pause()"])
    wait_to_be_asked()

supervise(3, run)
"""
    )
    program.ready("w1", "w2", "w3")
    _, *below = program.all_processes()
    assert len(below) == 3 * 4  # guardian, worker, two of its own
    os.kill(program.process.pid, signal.SIGKILL)
    wait_until_gone(below, within=2.0)


def test_a_child_that_holds_the_interpreter_lock_dies_with_its_supervisor_and_so_do_its_children(start):
    program = start(
        """
import ctypes

def run(seat):
    subprocess.Popen(["sleep", "1000"])
    print(f"ready {os.getpid()}")
    ctypes.PyDLL(None).sleep(1000)
    return 0

supervise(1, run)
"""
    )
    program.ready("w1")
    _, *below = program.all_processes()
    os.kill(program.process.pid, signal.SIGKILL)
    wait_until_gone(below, within=2.0)


def test_a_child_dies_with_its_supervisor_even_if_its_guardian_was_killed(start):
    if sys.platform != "linux":
        pytest.skip("the kernel cannot do this here")
    program = start(TWO_WAITING)
    workers = set(program.ready("w1", "w2").values())
    _, *below = program.all_processes()
    for process in below:
        if process.pid not in workers:
            process.kill()
    os.kill(program.process.pid, signal.SIGKILL)
    wait_until_gone(below, within=2.0)


def test_processes_that_left_their_worker_leave_no_zombies(start):
    program = start(
        """
def run(seat):
    for _ in range(3):
        subprocess.run(["sh", "-c", "setsid true & true &"], check=True)
    wait_to_be_asked()

supervise(1, run)
"""
    )
    program.ready("w1")
    deadline = time.monotonic() + SOON
    while len(program.all_processes()) > 3:  # supervisor, guardian, worker
        assert time.monotonic() < deadline, program.all_processes()
        time.sleep(0.01)
