"""The supervisor with real processes: each test runs a small program and talks to it by signals and lines."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time

import psutil
import pytest
from tests.system.harness import BUSY, SOON
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


def test_a_killed_child_has_its_leases_released_within_a_second_and_is_followed_under_a_new_id(start):
    program = start("def run(seat):\n    print('id', seat.worker_id)\n    wait_to_be_asked()\nsupervise(1, run)")
    first = program.line(r"\[w1\] id (w1-[0-9a-f]{8})$")[1]
    pid = program.ready("w1")["w1"]
    killed = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    released = program.line(r"\[release\] released (\S+): (.*)")
    assert time.monotonic() - killed < 1.0 + BUSY
    assert released[1] == first
    assert released[2] == "killed by signal 9 (SIGKILL)"
    second = program.line(r"\[w1\] id (w1-[0-9a-f]{8})$")[1]
    assert second != first
    assert program.ready("w1")["w1"] != pid


def test_leases_are_released_only_after_the_whole_process_group_is_gone(start):
    program = start(
        """
def release(worker_id, reason):
    grandchild = int((HERE / "grandchild").read_text())
    try:
        state = Path(f"/proc/{grandchild}/stat").read_text().rsplit(")")[-1].split()[0]
    except FileNotFoundError:
        state = "gone"
    print("grandchild", "gone" if state in ("gone", "Z") else f"lives {state}")

def run(seat):
    grandchild = subprocess.Popen(["sleep", "1000"])
    (HERE / "grandchild").write_text(str(grandchild.pid))
    wait_to_be_asked()

supervise(1, run, release=release)
"""
    )
    pid = program.ready("w1")["w1"]
    killed = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    assert program.line(r"\[release\] grandchild (.*)")[1] == "gone"
    assert time.monotonic() - killed < 1.0 + BUSY


def test_sigterm_is_passed_on_and_nobody_is_followed(start):
    program = start(TWO_WAITING)
    program.ready("w1", "w2")
    program.process.send_signal(signal.SIGTERM)
    assert program.end() == 0
    text = "\n".join(program.seen)
    assert text.count("] asked to end") == 2
    assert text.count("] I am") == 2
    assert text.count("exited with code 0") >= 2


def test_sigint_asks_the_children_to_end_as_sigterm_does(start):
    program = start(TWO_WAITING)
    program.ready("w1", "w2")
    program.process.send_signal(signal.SIGINT)
    assert program.end() == 0
    assert sum("] asked to end" in line for line in program.seen) == 2


def test_a_second_sigterm_is_passed_on_too(start):
    program = start(
        """
def run(seat):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    print(f"ready {os.getpid()}")
    for count in (1, 2):
        signal.sigwait([signal.SIGTERM])
        print("asked", count)
    return 3

supervise(1, run)
"""
    )
    program.ready("w1")
    program.process.send_signal(signal.SIGTERM)
    program.line(r"\[w1\] asked 1")
    program.process.send_signal(signal.SIGTERM)
    program.line(r"\[w1\] asked 2")
    assert program.end() == 3


def test_a_child_that_will_not_end_is_killed_after_a_time_and_its_leases_are_released(start):
    program = start(
        """
def run(seat):
    if seat.index == 1:
        wait_to_be_asked()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print(f"ready {os.getpid()}")
    while True:
        signal.pause()

supervise(2, run, kill_after=0.3)
"""
    )
    program.ready("w1", "w2")
    asked = time.monotonic()
    program.process.send_signal(signal.SIGTERM)
    assert program.end() == 128 + signal.SIGKILL
    assert time.monotonic() - asked > 0.3
    assert any(re.search(r"released w2-\w+: killed by signal 9", line) for line in program.seen)
    assert any(re.search(r"released w1-\w+: exited with code 0", line) for line in program.seen)


def test_children_that_end_with_0_are_not_followed_and_the_supervisor_ends(start):
    program = start("def run(seat):\n    print('done', seat.index)\n    return 0\nsupervise(3, run)")
    assert program.end() == 0
    assert sorted(line for line in program.seen if " done " in line) == [f"[w{n}] done {n}" for n in (1, 2, 3)]


def test_the_exit_code_is_the_largest_of_the_children(start):
    program = start(
        """
def run(seat):
    try:
        wait_to_be_asked()
    except SystemExit:
        return [0, 5, 3][seat.index - 1]

supervise(3, run)
"""
    )
    program.ready("w1", "w2", "w3")
    program.process.send_signal(signal.SIGTERM)
    assert program.end() == 5


def test_an_exception_is_printed_with_its_traceback_and_the_child_is_followed(start):
    program = start(
        """
def run(seat):
    once = HERE / "once"
    if once.exists():
        return 0
    once.touch()
    raise ValueError("no good")

supervise(1, run)
"""
    )
    assert program.end() == 0
    text = "\n".join(program.seen)
    assert "[w1] Traceback (most recent call last):" in text
    assert "[w1] ValueError: no good" in text
    assert re.search(r"released w1-\w+: exited with code 70", text)
    assert re.search(r"w1-\w+ exited with code 70; restarting in 0\.1 s", text)


@pytest.mark.parametrize("refusal", ["return 78", "raise ConfigError('queues: none')"])
def test_when_every_child_refuses_its_configuration_the_supervisor_stops_with_78(start, refusal):
    program = start(f"def run(seat):\n    {refusal}\nsupervise(2, run)")
    assert program.end() == 78
    assert any("every worker rejects its configuration" in line for line in program.seen)


def test_one_child_that_refuses_its_configuration_is_tried_again_while_others_work(start):
    program = start(
        """
def run(seat):
    if seat.index == 1:
        wait_to_be_asked()
    return 78

supervise(2, run)
"""
    )
    for _ in range(3):
        program.line(r"\[supervisor\] .* WARNING +holdfast\.worker: w2-\w+ exited with code 78; restarting in")
    program.process.send_signal(signal.SIGTERM)
    assert program.end() == 78


def test_a_release_that_fails_is_repeated_and_keeps_nobody_waiting(start, tmp_path):
    program = start(
        """
def release(worker_id, reason):
    if not (HERE / "up").exists():
        raise StoreUnavailable("no route to store")
    print(f"released {worker_id}: {reason}")

def run(seat):
    wait_to_be_asked()

supervise(2, run, release=release)
"""
    )
    pids = program.ready("w1", "w2")
    os.kill(pids["w1"], signal.SIGKILL)
    program.line(r"\[release\] .*no route to store")
    program.line(r"leases of w1-\w+ not released .*; retrying in 0\.1 s")
    os.kill(pids["w2"], signal.SIGSEGV)
    program.line(r"\[w2\] ready")
    program.line(r"leases of w1-\w+, w2-\w+ not released")
    (tmp_path / "up").touch()
    released = {program.line(r"released (w\d)-\w+: (.*)").group(1, 2) for _ in range(2)}
    assert released == {("w1", "killed by signal 9 (SIGKILL)"), ("w2", "killed by signal 11 (SIGSEGV)")}


def test_a_release_that_hangs_does_not_keep_children_from_being_followed(start):
    program = start(
        """
def release(worker_id, reason):
    print("hanging")
    time.sleep(1000)

def run(seat):
    wait_to_be_asked()

supervise(1, run, release=release)
"""
    )
    os.kill(program.ready("w1")["w1"], signal.SIGKILL)
    program.line("hanging")
    os.kill(program.ready("w1")["w1"], signal.SIGKILL)
    program.ready("w1")


def test_sighup_replaces_the_children_one_by_one_each_after_it_has_drained(start):
    program = start(
        """
import contextlib

def run(seat):
    with contextlib.suppress(SystemExit):
        wait_to_be_asked()
    print("drained", seat.index)
    return 0

supervise(3, run)
"""
    )
    before = program.ready("w1", "w2", "w3")
    program.process.send_signal(signal.SIGHUP)
    events: list[tuple[str, str]] = []
    after: dict[str, int] = {}
    while len(after) < 3:
        match = program.line(r"\[(w\d)\] (drained|ready (\d+))")
        events.append((match[1], match[2].split()[0]))
        if match[3]:
            after[match[1]] = int(match[3])
    assert [label for label, what in events if what == "drained"] == ["w1", "w2", "w3"]
    for label in ("w1", "w2", "w3"):
        assert events.index((label, "drained")) < events.index((label, "ready"))
    for label, neighbour in (("w1", "w2"), ("w2", "w3")):
        assert _place(program.seen, rf"{label}-\w+ exited .*restarting in") < _place(
            program.seen, rf"\[{neighbour}\] asked to end"
        )
    assert not set(before.values()) & set(after.values())
    program.process.send_signal(signal.SIGTERM)
    assert program.end() == 0


def test_a_child_has_the_default_signal_handlers_no_input_and_none_of_the_supervisors_descriptors(start):
    program = start(
        """
def run(seat):
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        assert signal.getsignal(number) is signal.SIG_DFL, number
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert sys.stdin.read() == ""
    assert os.getpgid(0) != os.getpgid(os.getppid())
    print("descriptors", sorted(int(fd) for fd in os.listdir("/dev/fd")))
    wait_to_be_asked()

supervise(3, run)
"""
    )
    open_in = [program.line(r"descriptors \[(.*)\]")[1].split(", ") for _ in range(3)]
    assert [len(fds) for fds in open_in] == [4, 4, 4]  # 0, 1, 2, and the listing's own


@pytest.mark.parametrize("where", ["threading.Thread(target=supervise, args=(1, run)).start()", "beside()"])
def test_a_program_that_runs_threads_is_refused_with_the_remedy(start, where):
    program = start(
        f"""
import threading

def run(seat):
    return 0

def beside():
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    supervise(1, run)

{where}
"""
    )
    program.line(
        "ConfigError: .*start the supervisor from the main thread before any threads, or use processes=1", within=SOON
    )


def test_worker_ids_begin_with_the_given_name(start):
    program = start("def run(seat):\n    print('id', seat.worker_id)\n    return 0\nsupervise(2, run, name='shop')")
    assert program.end() == 0
    ids = [line.split()[-1] for line in program.seen if "] id " in line]
    assert sorted(re.sub(r"-[0-9a-f]{8}$", "", worker_id) for worker_id in ids) == ["shop-w1", "shop-w2"]


@pytest.mark.slow
def test_an_idle_supervisor_does_nothing(start):
    program = start(TWO_WAITING)
    program.ready("w1", "w2")
    supervisor = psutil.Process(program.process.pid)
    before = supervisor.cpu_times()
    with pytest.raises(subprocess.TimeoutExpired):
        program.process.wait(3.0)
    after = supervisor.cpu_times()
    assert (after.user + after.system) - (before.user + before.system) <= 0.02


def test_a_storm_of_kills_loses_no_release_and_leaves_nobody_behind(start):
    program = start(
        """
def run(seat):
    subprocess.Popen(["sleep", "1000"])
    print("id", seat.worker_id, os.getpid())
    wait_to_be_asked()

supervise(4, run, delays=Delays(first=0.01, limit=0.05))
"""
    )
    born: dict[str, int] = {}
    for _ in range(60):
        match = program.line(r"\] id (\S+) (\d+)$")
        born[match[1]] = int(match[2])
        os.kill(int(match[2]), signal.SIGKILL)
    for _ in range(4):
        match = program.line(r"\] id (\S+) (\d+)$")
        born[match[1]] = int(match[2])
    below = program.all_processes()[1:]
    assert len(below) == 4 * 3
    program.process.send_signal(signal.SIGTERM)
    program.end()
    wait_until_gone(below, within=2.0)
    released = {match[1] for line in program.seen if (match := re.search(r"released (\S+):", line))}
    assert released == set(born)


def _place(lines: list[str], pattern: str) -> int:
    return next(number for number, line in enumerate(lines) if re.search(pattern, line))
