"""Jobs with order keys, done by many processes some of which are killed: per key in order, and one at a time."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.system.harness import eventually

PROCESSES = 8
KEYS = 10
JOBS = 25  # of each key


def check_trace(trace: list[str], killed: set[int]) -> None:
    """The jobs of a key began in order, and none before the last one was over: ended, or its worker killed."""
    over, under_way = -1, None
    for line in trace:
        word, number, pid = line.split()
        this = int(number), int(pid)
        if word == "ended":
            assert under_way == this, line
            over, under_way = this[0], None
        elif under_way is None:
            assert this[0] in {over, over + 1}, f"{line} after {over}"  # killed before the commit, it is done again
            under_way = this
        else:
            assert under_way[1] in killed, f"{line} while {under_way} was under way"
            assert this[0] == under_way[0], f"{line} after {under_way}"
            under_way = this
    assert (over, under_way) == (JOBS - 1, None)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_jobs_of_a_key_take_effect_in_order_and_never_at_once_though_workers_are_killed(
    ledger, workers, tmp_path: Path
):
    chance = random.Random(20260211)
    traces = {f"customer-{number}": tmp_path / f"trace-{number}" for number in range(KEYS)}
    jobs: list[str] = []

    def enqueue(first: int, last: int) -> None:
        for number in range(first, last):
            for order_key, path in traces.items():
                jobs.append(ledger.enqueue("pay_in_order", {"order_key": order_key}, path=str(path), number=number))

    enqueue(0, 5)
    fleet = [workers.start(concurrency=3, poll_interval=0.05, lease=2.0) for _ in range(PROCESSES)]
    killed: set[int] = set()
    for number in range(5, JOBS):
        enqueue(number, number + 1)
        if number in {8, 14, 20}:
            eventually(lambda: any(path.exists() for path in traces.values()), "somebody works")
            victim = fleet.pop(chance.randrange(len(fleet)))
            victim.kill()
            killed.add(victim.pid)
            fleet.append(workers.start(concurrency=3, poll_interval=0.05, lease=2.0))
    ledger.completed(*jobs, within=90.0)
    ledger.assert_once(jobs)
    for path in traces.values():
        check_trace(path.read_text().splitlines(), killed)


@pytest.mark.parametrize(
    "trace",
    [
        ["began 0 1", "began 1 2", "ended 0 1"],
        ["began 0 1", "ended 0 1", "began 2 1"],
        ["began 0 1", "ended 0 1", "began 1 1", "ended 1 1", "began 0 1"],
        ["began 0 9", "began 1 2"],
        ["began 0 1", "ended 0 1"],
    ],
)
def test_a_trace_out_of_order_is_seen(trace):
    with pytest.raises(AssertionError):
        check_trace(trace, killed={9})
