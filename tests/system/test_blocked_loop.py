"""Handlers that block the event loop for longer than the lease."""

from __future__ import annotations

import signal


def test_a_handler_that_blocks_the_event_loop_for_three_leases_keeps_its_job(ledger, workers):
    job = ledger.enqueue("pay_after_blocking_the_loop", seconds=3 * ledger.store.lease)
    blocked = workers.start()
    blocked.line(rf"began {job}")
    idle = workers.started()
    ledger.completed(job)
    (effect,) = ledger.effects_of(job)
    assert effect.attempt == 1
    assert effect.pid == blocked.pid
    assert ledger.show(job).attempts == []
    for worker in (blocked, idle):
        worker.signal(signal.SIGTERM)
        assert worker.end() == 0, worker.text
    assert f"began {job}" not in idle.text
    ledger.assert_once([job])


def test_a_blocked_loop_keeps_the_jobs_that_wait_behind_it(ledger, workers):
    blocking = ledger.enqueue("pay_after_blocking_the_loop", seconds=2 * ledger.store.lease)
    waiting = ledger.enqueue_many("pay", [{}] * 5)
    blocked = workers.start(concurrency=2)
    blocked.line(rf"began {blocking}")
    idle = workers.started()
    ledger.completed(blocking, *waiting)
    ledger.assert_once([blocking, *waiting])
    assert all(effect.attempt == 1 for effect in ledger.store.effects())
    for worker in (blocked, idle):
        worker.signal(signal.SIGTERM)
        assert worker.end() == 0, worker.text
