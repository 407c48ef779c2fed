"""Jobs with order keys, done by many processes that are killed, stopped past their lease and shut down, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tests.system.fleet import PATIENT, Fleet, writers

PROCESSES = 4
KEYS = 8
JOBS = 20  # of each key


def check_trace(trace: Sequence[str], pids: Mapping[int, int]) -> None:
    """Every attempt at a job of a key, one that took no effect as well, began when the job before had taken effect."""
    ended: set[int] = set()
    places = {line: place for place, line in enumerate(trace)}
    took_effect = {places[f"ended {number} {pid}"]: number for number, pid in pids.items()}
    for place, line in enumerate(trace):
        word, number, _ = line.split()
        if word == "began":
            assert ended >= set(range(int(number))), f"{line} after {sorted(ended)}"
        elif place in took_effect:
            ended.add(took_effect[place])


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_jobs_of_a_key_take_effect_in_order_and_never_at_once_whatever_happens_to_workers(
    ledger, workers, tmp_path: Path
):
    traces = {f"customer-{number}": tmp_path / f"trace-{number}" for number in range(KEYS)}
    jobs: dict[str, list[str]] = {order_key: [] for order_key in traces}

    def enqueue(first: int, last: int) -> None:
        for number in range(first, last):
            for order_key, path in traces.items():
                options = {"order_key": order_key, **PATIENT}
                jobs[order_key].append(ledger.enqueue("pay_in_order", options, path=str(path), number=number))

    enqueue(0, JOBS // 2)
    fleet = Fleet(workers, PROCESSES, seed=20260211)
    fleet.disturb(lambda: len(ledger.store.effects()), KEYS * JOBS // 2, rounds=1)
    enqueue(JOBS // 2, JOBS)
    fleet.strike()
    fleet.resumed()
    everything = [job for some in jobs.values() for job in some]
    ledger.completed(*everything, within=60.0)
    fleet.shut_down()
    ledger.assert_once(everything)
    effects = ledger.store.effects()
    fences = {effect.job_id: effect.fence for effect in effects}
    for order_key, path in traces.items():
        check_trace(path.read_text().splitlines(), writers(jobs[order_key], effects))
        in_order = [fences[job] for job in jobs[order_key]]
        assert in_order == sorted(in_order)  # each was claimed after the one before


@pytest.mark.parametrize(
    "trace",
    [
        ["began 0 1", "began 1 2", "ended 0 1", "ended 1 2"],
        ["began 1 2", "ended 1 2", "began 0 1", "ended 0 1"],
        ["began 0 1", "began 1 9", "ended 0 1", "began 1 2", "ended 1 2"],
        ["began 0 9", "ended 0 9", "began 1 2", "began 0 1", "ended 0 1", "ended 1 2"],
    ],
)
def test_a_trace_out_of_order_is_seen(trace):
    with pytest.raises(AssertionError, match="after"):
        check_trace(trace, {0: 1, 1: 2})


def test_attempts_of_disturbed_workers_are_no_fault_of_a_trace():
    check_trace(
        ["began 0 9", "began 0 1", "ended 0 1", "began 1 9", "began 1 2", "ended 1 9", "ended 1 2"], {0: 1, 1: 2}
    )
