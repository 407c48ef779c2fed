"""The names of workers that are gone are deleted, but not while a record needs them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.redis.ending import acting_before
from tests.redis.whole import check_whole
from tests.servers.redis import connection_of

from holdfast.backends.redis.backend import RedisBackend
from holdfast.model.job import JobState
from holdfast.model.lease_rules import FORGET_WORKER_AFTER
from holdfast.model.outcome import Completed
from holdfast.store.values import Finish, Retention
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import MANY, a_job, claim, enqueue
from holdfast.testing.conformance.explanations import send_heartbeat

KEEP = Retention(completed=timedelta(minutes=10), failed=None, cancelled=None)
MINUTE = timedelta(minutes=1)


def _names(url: str) -> set[bytes]:
    client: Any = connection_of(url)
    return set(client.hvals(f"{{holdfast:{url.rpartition('name=')[2]}}}:workers"))


async def _complete(backend: RedisBackend, worker_id: str) -> str:
    await enqueue(backend, a_job())
    (job,) = await claim(backend, worker_id=worker_id)
    await backend.jobs.finish([Finish(job.lease, Completed())])
    return job.id


async def _prune(backend: RedisBackend, clock: ManualClock, minutes: int) -> None:
    for _ in range(minutes):
        clock.advance(MINUTE)
        await backend.jobs.prune(KEEP, MANY)


async def test_a_name_is_kept_while_a_completed_job_has_it_and_no_longer(
    backend: RedisBackend, clock: ManualClock, url: str
):
    job_id = await _complete(backend, "first")
    await _prune(backend, clock, 5)
    await _complete(backend, "second")
    check_whole(url)
    assert _names(url) == {b"first", b"second"}
    assert (await backend.insight.job(job_id)).job.worker_id == "first"
    await _prune(backend, clock, 7)
    assert _names(url) == {b"second"}
    await _prune(backend, clock, 7)
    assert _names(url) == set()
    check_whole(url)


async def test_a_worker_that_comes_back_gets_another_number(backend: RedisBackend, clock: ManualClock, url: str):
    first = await _complete(backend, "worker")
    await _prune(backend, clock, 2)
    second = await _complete(backend, "worker")
    check_whole(url)
    for job_id in (first, second):
        assert (await backend.insight.job(job_id)).job.worker_id == "worker"
    await enqueue(backend, a_job())
    (held,) = await claim(backend, worker_id="worker")
    await _prune(backend, clock, 30)
    assert _names(url) == {b"worker"}  # it has a lease
    assert [lease.worker_id for lease in await backend.insight.leases(MANY)] == ["worker"]
    await backend.jobs.finish([Finish(held.lease, Completed())])
    await _prune(backend, clock, 13)
    assert _names(url) == set()


async def test_a_job_that_is_claimed_while_names_are_pruned_keeps_its_worker(
    backend: RedisBackend, clock: ManualClock, url: str
):
    for number in range(300):
        await _complete(backend, f"worker-{number}")
    await _prune(backend, clock, 2)
    await enqueue(backend, a_job())
    await claim(backend, worker_id="worker-7")
    await _prune(backend, clock, 20)
    assert _names(url) == {b"worker-7"}
    check_whole(url)


async def test_a_worker_that_comes_back_while_it_is_forgotten_keeps_its_tasks(
    backend: RedisBackend, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    """They are sent with the first heartbeat only."""
    await send_heartbeat(backend, tasks=("greet", "charge"))
    await send_heartbeat(backend, "worker-b")
    clock.advance(FORGET_WORKER_AFTER + MINUTE)
    with monkeypatch.context() as patch:
        acting_before(patch, 1, lambda: send_heartbeat(backend, tasks=None), "write")
        await backend.jobs.prune(KEEP, MANY)
    (worker,) = await backend.insight.workers()
    assert (worker.heartbeat.worker_id, worker.heartbeat.tasks) == ("worker-a", ("greet", "charge"))


@pytest.mark.slow
async def test_jobs_of_more_workers_than_one_command_can_name_are_read_at_once(backend: RedisBackend):
    jobs = [a_job() for _ in range(8200)]
    await backend.jobs.enqueue(jobs)
    for number in range(len(jobs)):
        await claim(backend, 1, worker_id=f"worker-{number}")
    kept = await backend.jobs.delete([job.id for job in jobs], [JobState.COMPLETED], timedelta(0))
    assert kept == dict.fromkeys((job.id for job in jobs), JobState.RUNNING)
