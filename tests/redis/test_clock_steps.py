"""The server's clock is set, or a failover leads to one that is ahead: leases that seem expired are not taken."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from holdfast.backends.redis.backend import RedisBackend
from holdfast.model.steady_clock import Steady
from holdfast.store import jobs_over_rows
from holdfast.store.verbs import rescue
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import LEASE, hold_one, in_extender
from holdfast.testing.stores import open_store

HOUR = timedelta(hours=1)
MANY = 100


class Hands:
    """The clock of the server, and the monotonic one of this process."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.monotonic_now = 1000.0

    def monotonic(self) -> float:
        return self.monotonic_now

    def pass_by(self, seconds: float) -> None:
        self.monotonic_now += seconds
        self.clock.advance(seconds)


@pytest.fixture
def hands(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Hands:
    hands = Hands(clock)
    for module in (jobs_over_rows, rescue):
        monkeypatch.setattr(module, "time", hands)
    return hands


@pytest.fixture
async def store(url: str, hands: Hands) -> AsyncIterator[RedisBackend]:
    async with open_store(url, clock=hands.clock) as store:
        assert isinstance(store, RedisBackend)
        store._parts.here.rows.steady = Steady()  # as with the server's own clock
        yield store


async def _taken(store: RedisBackend) -> list[str]:
    return [job.job_id for job in await store.jobs.rescue(HOUR, MANY)]


async def test_after_a_step_forward_leases_are_left_to_workers_that_live(store: RedisBackend, hands: Hands):
    job = await hold_one(store)
    assert await _taken(store) == []  # nothing has expired; the look has seen the clock
    hands.clock.advance(3600)

    assert await _taken(store) == []
    hands.pass_by(LEASE.total_seconds() / 2)
    assert await _taken(store) == []
    assert (await in_extender(store, lambda extender: extender.extend([job.lease], LEASE))).lost == []
    hands.pass_by(LEASE.total_seconds() - 1)
    assert await _taken(store) == []


async def test_after_a_step_forward_the_jobs_of_a_dead_worker_are_rescued_within_two_leases(
    store: RedisBackend, hands: Hands
):
    job = await hold_one(store)
    assert await _taken(store) == []
    hands.clock.advance(3600)
    assert await _taken(store) == []
    hands.pass_by(LEASE.total_seconds() + 1)

    assert await _taken(store) == [job.id]


async def test_without_a_step_an_expired_lease_is_taken_at_once(store: RedisBackend, hands: Hands):
    job = await hold_one(store)
    assert await _taken(store) == []
    hands.pass_by(LEASE.total_seconds())

    assert await _taken(store) == [job.id]
