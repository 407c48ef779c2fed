"""Handlers that neither end at their time limit nor can be stopped where they run."""

from __future__ import annotations

import signal

import pytest

from holdfast.model.job import JobState


@pytest.mark.parametrize("task", ["hang_in_thread", "hang_in_loop"])
def test_a_worker_with_a_stuck_handler_ends_with_71(ledger, workers, task):
    job = ledger.enqueue(task)
    worker = workers.start(stuck_grace=0.3)
    worker.line(rf"began {job}")
    assert worker.end() == 71, worker.text
    assert f"job {job} ({task}) is stuck" in "\n".join(worker.seen)


@pytest.mark.parametrize("task", ["hang_in_thread", "hang_in_loop"])
def test_a_stuck_job_runs_alone_the_next_time_and_is_killed_at_its_limit(ledger, workers, task):
    stuck = ledger.enqueue(task)
    supervisor = workers.start(processes=2, stuck_grace=0.3, lease=10.0)
    first = supervisor.line(rf"began {stuck} (\d+)")[1]
    supervisor.line(r"exited with code 71; restarting in")
    second = supervisor.line(rf"began {stuck} (\d+)")[1]
    assert first != second
    assert ledger.ended(stuck) == JobState.FAILED
    details = ledger.show(stuck)
    assert [attempt.outcome for attempt in details.attempts] == ["rescued", "failed"]
    assert "time limit" in (details.job.reason or "")
    later = ledger.enqueue("pay")
    ledger.completed(later)
    supervisor.signal(signal.SIGTERM)
    assert supervisor.end() == 0, supervisor.text
    assert "\n".join(supervisor.seen).count("exited with code 71; restarting") == 1
