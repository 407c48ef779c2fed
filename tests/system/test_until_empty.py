"""Workers that end by themselves when nothing is left to do."""

from __future__ import annotations

from holdfast.model.job import JobState


def test_two_workers_end_when_nothing_is_ready_retrying_or_running_anywhere(ledger, workers, gate):
    barrier = gate("late")
    late = ledger.enqueue("pay_late", gate=barrier.path)
    first = workers.start(until_empty=True)
    first.line(rf"began {late}")
    jobs = ledger.enqueue_many("pay", [{}] * 50)
    jobs += ledger.enqueue_many("pay_at_second_attempt", [{}] * 5)
    second = workers.start(until_empty=True)
    ledger.completed(*jobs)
    # Both have nothing to do, and wait for the one that runs: it might come back.
    assert first.process.poll() is None
    assert second.process.poll() is None
    barrier.open()
    assert first.end() == 0, first.text
    assert second.end() == 0, second.text
    ledger.assert_once([late, *jobs])


def test_a_worker_until_empty_takes_over_what_a_killed_one_held_before_it_ends(ledger, workers, gate):
    barrier = gate("late")
    job = ledger.enqueue("pay_late", gate=barrier.path)
    killed = workers.start()
    killed.line(rf"began {job}")
    other = workers.started(until_empty=True)
    killed.kill()
    other.line(rf"began {job}")
    barrier.open()
    assert other.end() == 0, other.text
    ledger.assert_once([job])


def test_paused_and_delayed_jobs_are_left_and_told_of(ledger, workers):
    delayed = ledger.enqueue_many("pay", [{}] * 2, {"delay": 3600})
    paused = ledger.enqueue_many("pay", [{}] * 3, {"queue": "closed"})
    done = ledger.enqueue_many("pay", [{}] * 4)
    ledger.app.portal.call(ledger.app.queues.pause("closed"))
    worker = workers.run_until_empty()
    text = "\n".join(worker.seen)
    assert "except 2 jobs scheduled and not due yet" in text
    assert "except 3 jobs in paused queues" in text
    assert {ledger.state(job) for job in delayed} == {JobState.SCHEDULED}
    assert {ledger.state(job) for job in paused} == {JobState.READY}
    ledger.assert_once(done)
    assert len(ledger.store.effects()) == len(done)
