"""A supervisor that is killed alone takes everything below it along."""

from __future__ import annotations

from tests.system.harness import all_gone


def test_workers_and_job_children_die_with_a_killed_supervisor_and_a_new_worker_finishes_the_jobs(
    ledger, workers, gate
):
    gates = [gate(str(number)) for number in range(4)]
    jobs = [ledger.enqueue("pay_late_in_child", gate=gates[number].path) for number in (0, 1)]
    jobs += [ledger.enqueue("pay_late_in_thread", gate=gates[number].path) for number in (2, 3)]
    supervisor = workers.start(processes=2, concurrency=2, prefetch_max=0)
    for barrier in gates:
        barrier.reached()
    below = supervisor.below()
    assert len(below) >= 2 * 2 + 2  # guardians, workers, job children
    supervisor.kill()
    all_gone(below, within=2.0)
    for barrier in gates:
        barrier.close()
    other = workers.start(until_empty=True)
    for barrier in gates:
        barrier.open()
    assert other.end() == 0, other.text
    ledger.assert_once(jobs)
