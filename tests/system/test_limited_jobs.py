"""Limits over many processes that are killed, stopped past their lease and shut down: they are never exceeded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tests.system.fleet import PATIENT, Fleet, effective, writers

from holdfast import Limit

PROCESSES = 3
LIMIT = 3
KEYS = 3
KEY_LIMIT = 2
JOBS = 90


def most_at_once(trace: Sequence[str], pids: Mapping[int, int]) -> int:
    """Return how many jobs ran at once, of the attempts that took effect."""
    under_way, most = 0, 0
    for line in effective(trace, pids):
        under_way += 1 if line.startswith("began") else -1
        most = max(most, under_way)
    return most


def run(ledger, workers, jobs: Mapping[Path, list[str]], *, seed: int) -> list[int]:
    """Let workers do the jobs of each trace while some are disturbed; return how many ran at once, by trace."""
    fleet = Fleet(workers, PROCESSES, seed=seed, concurrency=4)
    everything = [job for some in jobs.values() for job in some]
    fleet.disturb(lambda: len(ledger.store.effects()), len(everything))
    fleet.resumed()
    ledger.completed(*everything, within=60.0)
    fleet.shut_down()
    ledger.assert_once(everything)
    effects = ledger.store.effects()
    return [most_at_once(trace.read_text().splitlines(), writers(some, effects)) for trace, some in jobs.items()]


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_limit_is_not_exceeded_whatever_happens_to_workers(ledger, workers, tmp_path: Path):
    trace = tmp_path / "trace"
    jobs = [ledger.enqueue("pay_in_order", PATIENT, path=str(trace), number=number) for number in range(JOBS)]
    ledger.app.portal.call(ledger.app.tasks.limit("pay_in_order", Limit(running=LIMIT)))
    (most,) = run(ledger, workers, {trace: jobs}, seed=20261116)
    assert 1 <= most <= LIMIT


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_limit_per_key_is_not_exceeded_whatever_happens_to_workers(ledger, workers, tmp_path: Path):
    jobs: dict[Path, list[str]] = {}
    for key in (f"customer-{number}" for number in range(KEYS)):
        options, trace = {"limit_key": key, **PATIENT}, tmp_path / key
        calls = [{"path": str(trace), "number": number} for number in range(JOBS // KEYS)]
        jobs[trace] = ledger.enqueue_many("pay_in_order", calls, options)
    ledger.app.portal.call(ledger.app.tasks.limit("pay_in_order", Limit(running=KEY_LIMIT), per_key=True))
    most = run(ledger, workers, jobs, seed=20261117)
    assert max(most) == KEY_LIMIT
    assert min(most) >= 1


def test_a_trace_over_the_limit_is_seen():
    trace = ["began 0 1", "began 1 2", "began 2 9", "ended 0 1", "began 2 1", "ended 2 1", "began 3 9"]
    assert most_at_once(trace, {0: 1, 1: 2, 2: 1, 3: 1}) == 2
    assert most_at_once(trace, {0: 1, 1: 2, 2: 9, 3: 9}) == 3
