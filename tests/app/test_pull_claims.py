"""Claims that nobody will hear of: the caller was cancelled, or the answer was lost. What they took is given back."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.app.test_lost_replies import LOST, Failing
from tests.app.work import LIMIT, connected

from holdfast import App, ConfigError, JobHandle, JobState, OutcomeUnknown, StoreUnavailable


@pytest.fixture
async def orders(file_app: App) -> list[JobHandle]:
    @file_app.task(queue="orders")
    async def order(n: int) -> None: ...

    return list(await order.enqueue_many([{"n": n} for n in range(3)]))


async def assert_given_back(app: App, orders: list[JobHandle]) -> None:
    """Nobody holds the jobs; they are ready, as if they had not been touched but for a claim that is excused."""
    await app.queues.pause("elsewhere")  # a write: behind whatever the store was asked before
    assert await app.leases() == []
    for order in orders:
        details = await order.details()
        assert details.job.state is JobState.READY
        assert {attempt.outcome for attempt in details.attempts} <= {"released"}
    again = await app.claim("orders", 3)
    assert {(held.job.used_attempts, held.job.lost) for held in again} == {(1, 0)}


class Rival:
    """Another writer, who takes the write lock just before a claim asks for it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.holds = asyncio.Event()

    def take(self) -> None:
        self._connection.execute("begin immediate")
        self.holds.set()

    def let_go(self) -> None:
        self._connection.execute("commit")


@pytest.fixture
async def rival(file_app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rival]:
    jobs = (await file_app.opened()).jobs
    claim = jobs.claim
    with connected(tmp_path / "jobs.db") as connection:
        rival = Rival(connection)

        async def after_the_rival(*args: Any) -> Any:
            if not rival.holds.is_set():
                rival.take()
            return await claim(*args)

        monkeypatch.setattr(jobs, "claim", after_the_rival)
        yield rival


@pytest.mark.parametrize("worker_id", [{}, {"worker_id": "me"}], ids=["unnamed", "named"])
@pytest.mark.parametrize("times", [1, 3])
async def test_a_claim_that_is_cancelled_while_another_writer_holds_the_lock_keeps_nothing(
    file_app: App, orders: list[JobHandle], rival: Rival, times: int, worker_id: dict[str, Any]
):
    claiming = asyncio.create_task(file_app.claim("orders", 3, **worker_id))
    await asyncio.wait_for(rival.holds.wait(), LIMIT)
    for _ in range(times):
        claiming.cancel()
        await asyncio.sleep(0)
    rival.let_go()
    async with asyncio.timeout(LIMIT):
        await asyncio.wait({claiming})

    assert claiming.cancelled()
    await assert_given_back(file_app, orders)


async def test_a_claim_whose_time_is_over_keeps_nothing(file_app: App, orders: list[JobHandle], rival: Rival):
    asyncio.get_running_loop().call_later(0.5, rival.let_go)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(file_app.claim("orders", 3), 0.2)

    await assert_given_back(file_app, orders)


async def test_what_a_cancelled_claim_has_taken_and_the_store_does_not_take_back_is_told(
    file_app: App, orders: list[JobHandle], monkeypatch, rival: Rival, caplog
):
    jobs = file_app.backend.jobs
    monkeypatch.setattr(jobs, "release", Failing(jobs.release, StoreUnavailable("gone"), first=False))
    claiming = asyncio.create_task(file_app.claim("orders", 3))
    await asyncio.wait_for(rival.holds.wait(), LIMIT)
    with caplog.at_level(logging.WARNING, "holdfast"):
        claiming.cancel()
        rival.let_go()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(claiming, LIMIT)

    assert "3 jobs" in caplog.text
    assert "leases will expire" in caplog.text
    assert len(await file_app.leases()) == 3


@pytest.mark.parametrize("was_done", [True, False])
async def test_a_claim_whose_answer_was_lost_says_so_and_keeps_nothing(
    file_app: App, orders: list[JobHandle], monkeypatch, was_done: bool
):
    jobs = file_app.backend.jobs
    monkeypatch.setattr(jobs, "claim", Failing(jobs.claim, LOST, first=was_done))
    with pytest.raises(OutcomeUnknown):
        await file_app.claim("orders", 3)

    await assert_given_back(file_app, orders)


async def test_a_lost_answer_under_an_id_that_others_may_use_touches_nobodys_leases(
    file_app: App, orders: list[JobHandle], monkeypatch
):
    (other,) = await file_app.claim("orders", worker_id="me")
    jobs = file_app.backend.jobs
    monkeypatch.setattr(jobs, "claim", Failing(jobs.claim, LOST))
    with pytest.raises(OutcomeUnknown):
        await file_app.claim("orders", worker_id="me")

    assert len(await file_app.leases()) == 2, "nobody can tell whose they are: what was taken expires"
    await other.complete()


async def test_every_claim_without_an_id_has_one_of_its_own_and_a_given_one_is_kept(
    file_app: App, orders: list[JobHandle]
):
    for _ in range(2):
        await file_app.claim("orders")
    await file_app.claim("orders", worker_id="me")

    ids = sorted(lease.worker_id for lease in await file_app.leases())
    assert len(set(ids)) == 3
    assert [name.partition(".")[0] for name in ids] == ["caller", "caller", "me"]
    assert "me" in ids


@pytest.mark.parametrize("lease", [0, 0.0, timedelta(0), 1e-9])
async def test_a_lease_that_would_be_over_at_once_is_refused(file_app: App, orders: list[JobHandle], lease):
    with pytest.raises(ConfigError, match=r"lease.*more than 0, for example 30"):
        await file_app.claim("orders", lease=lease)
    assert await file_app.leases() == []
