"""Limits over many processes, some of which are killed and some stopped past their lease: they are never exceeded."""

from __future__ import annotations

import random
import signal
from collections.abc import Collection
from pathlib import Path

import pytest
from tests.system.harness import eventually

from holdfast import Limit

PROCESSES = 6
LIMIT = 3
KEYS = 3
KEY_LIMIT = 2
JOBS = 150


def most_at_once(trace: Collection[str], dead: Collection[int]) -> int:
    """Return how many jobs ran at once in live workers; a job that a dead worker left open does not count."""
    ended = {(number, pid) for word, number, pid in map(str.split, trace) if word == "ended"}
    under_way: set[tuple[str, str]] = set()
    most = 0
    for word, number, pid in map(str.split, trace):
        if word == "ended":
            under_way.discard((number, pid))
        elif int(pid) not in dead or (number, pid) in ended:
            under_way.add((number, pid))
        most = max(most, len(under_way))
    return most


def disturb(ledger, workers, traces: Collection[Path], jobs: list[str]) -> tuple[set[int], set[int]]:
    """Let processes do the jobs, of which some are killed and some stopped; return the killed and the stopped ones."""
    chance = random.Random(20261116)
    is_sqlite = ledger.app.backend.url.startswith("sqlite")
    fleet = [workers.start(concurrency=4, poll_interval=0.05, lease=2.0) for _ in range(PROCESSES)]
    killed: set[int] = set()
    frozen: set[int] = set()

    def ended() -> int:
        return sum(trace.read_text().count("ended") for trace in traces if trace.exists())

    for turn in range(6):
        share = (turn + 1) * len(jobs) // 10
        eventually(lambda: ended() >= share, "somebody works")  # noqa: B023
        victim = fleet.pop(chance.randrange(len(fleet)))
        if turn % 2 and not is_sqlite:  # a stopped process may hold the write lock of SQLite
            victim.signal(signal.SIGSTOP)
            frozen.add(victim.pid)
        else:
            victim.kill()
            killed.add(victim.pid)
        fleet.append(workers.start(concurrency=4, poll_interval=0.05, lease=2.0))
    ledger.completed(*jobs, within=120.0)
    ledger.assert_once(jobs)
    return killed, frozen


def most_of(trace: Path, killed: Collection[int], frozen: Collection[int]) -> int:
    """Return how many jobs ran at once, without those of workers that were stopped past their lease."""
    lines = [line for line in trace.read_text().splitlines() if int(line.split()[2]) not in frozen]
    return most_at_once(lines, killed)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_limit_is_not_exceeded_though_workers_are_killed_and_stopped_past_their_lease(
    ledger, workers, tmp_path: Path
):
    trace = tmp_path / "trace"
    jobs = [ledger.enqueue("pay_in_order", path=str(trace), number=number) for number in range(JOBS)]
    ledger.app.portal.call(ledger.app.tasks.limit("pay_in_order", Limit(running=LIMIT)))
    assert 1 <= most_of(trace, *disturb(ledger, workers, [trace], jobs)) <= LIMIT


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_limit_per_key_is_not_exceeded_though_workers_are_killed_and_stopped_past_their_lease(
    ledger, workers, tmp_path: Path
):
    traces = {f"customer-{number}": tmp_path / f"trace-{number}" for number in range(KEYS)}
    jobs = [
        ledger.enqueue("pay_in_order", {"limit_key": key}, path=str(trace), number=number)
        for number in range(JOBS // KEYS)
        for key, trace in traces.items()
    ]
    ledger.app.portal.call(ledger.app.tasks.limit("pay_in_order", Limit(running=KEY_LIMIT), per_key=True))
    ends = disturb(ledger, workers, traces.values(), jobs)
    assert [key for key, trace in traces.items() if not 1 <= most_of(trace, *ends) <= KEY_LIMIT] == []
    assert max(most_of(trace, *ends) for trace in traces.values()) == KEY_LIMIT


def test_a_trace_over_the_limit_is_seen():
    trace = ["began 0 1", "began 1 2", "ended 0 1", "began 2 1", "began 3 9", "ended 2 1"]
    assert most_at_once(trace, dead={9}) == 2
    assert most_at_once(trace, dead=set()) == 3
    assert most_at_once([*trace, "ended 3 9"], dead={9}) == 3
