"""Signals of two kinds to one supervisor: who was asked to end once is not told to hurry."""

from __future__ import annotations

import contextlib
import signal

import pytest
from tests.system.supervised_program import started

DRAINING = """
def run(seat):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    print(f"ready {os.getpid()}")
    signal.sigwait([signal.SIGTERM])
    print("asked")
    if signal.sigtimedwait([signal.SIGTERM], 1.0):
        print("hurried")
        return 3
    print("drained")
    return 0

supervise(1, run)
"""


@pytest.fixture
def program(tmp_path):
    with contextlib.ExitStack() as programs:
        program = programs.enter_context(started(tmp_path, DRAINING))
        program.ready("w1")
        yield program


@pytest.mark.parametrize(
    ("first", "second"), [(signal.SIGTERM, signal.SIGHUP), (signal.SIGHUP, signal.SIGTERM)], ids=["stop", "roll"]
)
def test_a_roll_and_a_stop_together_ask_a_worker_to_end_once(program, first, second):
    program.process.send_signal(first)
    program.line(r"\[w1\] asked")
    program.process.send_signal(second)
    program.line(r"\[w1\] (drained|hurried)")
    assert program.end() == 0
    assert not any("hurried" in line for line in program.seen)
    assert sum("] ready" in line for line in program.seen) == 1, "nobody follows once it is stopping"


def test_a_second_stop_hurries_a_worker_that_was_asked_to_make_room_before(program):
    program.process.send_signal(signal.SIGHUP)
    program.line(r"\[w1\] asked")
    program.process.send_signal(signal.SIGTERM)
    program.line("stopping: asking every worker to end")
    program.process.send_signal(signal.SIGTERM)
    program.line(r"\[w1\] hurried")
    assert program.end() == 3
