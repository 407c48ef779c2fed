"""Many who want the same store at once, and one who does not let go of it."""

from __future__ import annotations

import re
import signal
import time

import pytest

PROCESSES = 8
EACH = 5  # jobs of a client: what matters is how many clients there are at once


def storm(ledger, workers, clients: int) -> None:
    """Let so many clients in each of the processes enqueue and complete, and account for every job."""
    programs = [workers.program("tests.system.apps.storm_program", str(clients), str(EACH)) for _ in range(PROCESSES)]
    done = 0
    for program in programs:
        assert program.end(within=150.0) == 0, program.text
        done += int(re.findall(r"^enqueued \d+ done (\d+)$", program.text, re.MULTILINE)[0])
    jobs = [effect.job_id for effect in ledger.store.effects()]
    assert len(jobs) == len(set(jobs)) == done == PROCESSES * clients * EACH
    ledger.assert_once(jobs[::50])


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_two_hundred_clients_in_eight_processes_lose_nothing_and_double_nothing(ledger, workers):
    storm(ledger, workers, 25)


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("store", ["postgres", "valkey"], indirect=True)
def test_as_many_clients_as_a_server_has_room_for_lose_nothing_and_double_nothing(ledger, workers):
    storm(ledger, workers, 3)


@pytest.mark.parametrize("age", [0.0, pytest.param(6.0, marks=pytest.mark.slow)], ids=["new", "old"])
@pytest.mark.parametrize("task", ["pay_late", pytest.param("pay_late_in_thread", marks=pytest.mark.slow)])
def test_a_job_whose_lease_could_not_be_extended_for_two_leases_stays_with_its_living_worker(
    ledger, workers, gate, task, age
):
    idle = workers.started(queues=["elsewhere"])
    ledger.app.sync.opened()  # a worker may run before it has made the tables
    until = time.monotonic() + age * ledger.store.lease  # an old one has had long access to the store
    while time.monotonic() < until:
        ledger.leases()
    barrier = gate("late")
    job = ledger.enqueue(task, gate=barrier.path)
    holder = workers.start()
    holder.line(rf"began {job}")
    with ledger.store.locked():
        ledger.expired(job, 2.0)
    until = time.monotonic() + ledger.store.lease  # in this time the idle one would have rescued it
    while time.monotonic() < until:
        assert ledger.show(job).attempts == [], idle.text
    barrier.open()
    ledger.completed(job)
    later = ledger.enqueue("pay")
    ledger.completed(later)
    for worker in (holder, idle):
        worker.signal(signal.SIGTERM)
        assert worker.end() == 0, worker.text
    ledger.assert_once([job, later])
    assert ledger.show(job).attempts == []
