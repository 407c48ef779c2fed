"""Jobs that take their worker down, beside a hundred that have done nothing."""

from __future__ import annotations

import signal

import pytest

from holdfast.model.job import JobState

INNOCENT = 100


def run_beside_the_innocent(ledger, workers, task, arguments, **settings):
    """Run the guilty job amid the innocent; return its details."""
    before = ledger.enqueue_many("pay", [{}] * (INNOCENT // 4))
    before += ledger.enqueue_many("pay_in_thread", [{}] * (INNOCENT // 4))
    guilty = ledger.enqueue(task, **arguments)
    after = ledger.enqueue_many("pay", [{}] * (INNOCENT // 4))
    after += ledger.enqueue_many("pay_in_thread", [{}] * (INNOCENT // 4))
    supervisor = workers.start(processes=2, until_empty=True, lease=10.0, **settings)
    assert supervisor.end(within=50.0) == 0, supervisor.text
    innocent = before + after
    ledger.assert_once(innocent)
    return innocent, ledger.show(guilty), supervisor


@pytest.mark.slow
@pytest.mark.parametrize("how", ["segfault", "kill"])
def test_a_job_that_kills_its_worker_is_failed_and_costs_its_neighbours_nothing(ledger, workers, how):
    innocent, guilty, supervisor = run_beside_the_innocent(ledger, workers, "kill_the_worker", {"how": how})
    assert guilty.job.state == JobState.FAILED
    assert "worker lost" in (guilty.job.reason or "")
    ran = [attempt.outcome for attempt in guilty.attempts if attempt.outcome != "released"]  # prefetched, and never run
    assert ran == ["rescued"] * 3
    assert {ledger.used_attempts(job) for job in innocent} == {1}
    number = signal.SIGSEGV if how == "segfault" else signal.SIGKILL
    deaths = [
        line for line in supervisor.seen if f"killed by signal {number.value} ({number.name}); restarting in" in line
    ]
    assert len(deaths) == 1, supervisor.text  # from then on it ran alone


def test_a_job_that_eats_all_memory_is_failed_and_its_neighbours_complete(ledger, workers):
    _, guilty, _ = run_beside_the_innocent(ledger, workers, "devour_memory", {}, memory=3 << 30)
    assert guilty.job.state == JobState.FAILED, guilty
