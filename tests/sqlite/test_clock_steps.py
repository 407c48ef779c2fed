"""The machine's clock is set while workers live: their leases seem to have expired, and are not taken for that."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from holdfast.backends.sqlite import backend as sqlite_backend
from holdfast.model.job import LeasedJob
from holdfast.model.lease_rules import MAX_EXTEND_AT
from holdfast.model.steady_clock import Steady
from holdfast.store import jobs_over_rows
from holdfast.store.backend import Backend
from holdfast.store.verbs import rescue
from holdfast.testing.conformance.base import LEASE, hold_one, in_extender
from holdfast.testing.stores import open_store

HOUR = timedelta(hours=1)
DAY = 86_400 * 1_000_000
MANY = 100


def test_a_clock_that_was_never_seen_to_step_is_steady_for_longer_than_any_lease():
    steady = Steady()

    assert steady.since(7 * DAY, 100.0, 100.0) > timedelta(days=365)
    assert steady.since(7 * DAY + 5_000_000, 105.0, 105.0) > timedelta(days=365)


@pytest.mark.parametrize("step", [2.0, 3600.0, -2.0, -3600.0])
def test_from_a_step_on_steadiness_is_counted_anew_by_the_clock_that_does_not_step(step):
    steady = Steady()
    steady.since(7 * DAY, 100.0, 100.0)
    stepped = 7 * DAY + int(step * 1_000_000)

    assert steady.since(stepped + 1_000_000, 101.0, 101.0) == timedelta(0)
    assert steady.since(stepped + 11_000_000, 111.0, 111.0) == timedelta(seconds=10)
    assert steady.since(7 * DAY + 12_000_000, 112.0, 112.0) == timedelta(0)  # set right again: a step like another


def test_a_clock_that_is_drawn_to_the_right_time_by_and_by_does_not_step():
    steady = Steady()
    for second in range(100):
        assert steady.since(7 * DAY + second * 1_050_000, float(second), float(second)) > timedelta(days=365)


def test_a_reply_that_comes_late_is_no_step():
    steady = Steady()
    for sent, received in ((0.0, 0.0), (1.0, 9.0), (10.0, 10.0), (11.0, 30.0), (31.0, 31.1)):
        assert steady.since(7 * DAY + int(sent * 1_000_000), sent, received) > timedelta(days=365)
        assert steady.since(7 * DAY + int(received * 1_000_000), sent, received) > timedelta(days=365)


def test_a_step_is_seen_though_a_late_reply_came_before_it():
    steady = Steady()
    steady.since(7 * DAY, 0.0, 0.0)
    steady.since(7 * DAY + 1_000_000, 1.0, 20.0)

    assert steady.since(7 * DAY + 26_000_000, 21.0, 21.0) == timedelta(0)


class Hands:
    """The two clocks of this machine, turned by hand."""

    def __init__(self) -> None:
        self.wall_us = 20_000 * DAY
        self.monotonic = 1000.0

    def pass_by(self, seconds: float) -> None:
        self.monotonic += seconds
        self.step(seconds)

    def step(self, seconds: float) -> None:
        self.wall_us += int(seconds * 1_000_000)


@pytest.fixture
def hands(monkeypatch) -> Hands:
    hands = Hands()
    monkeypatch.setattr(sqlite_backend, "time", SimpleNamespace(time_ns=lambda: hands.wall_us * 1000))
    for module in (jobs_over_rows, rescue):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: hands.monotonic))
    return hands


@pytest.fixture
async def store(tmp_path: Path, hands: Hands):
    """A store with the machine's own clock, in which somebody has looked for expired leases before."""
    async with open_store(f"sqlite:///{tmp_path / 'jobs.db'}?synchronous=normal") as store:
        assert await store.jobs.rescue(HOUR, MANY) == []
        yield store


async def taken(store: Backend) -> list[str]:
    return [job.job_id for job in await store.jobs.rescue(HOUR, MANY)]


async def extend(store: Backend, job: LeasedJob) -> None:
    extension = await in_extender(store, lambda extender: extender.extend([job.lease], LEASE))
    assert extension.lost == []


async def test_a_lease_that_seems_to_have_expired_by_a_step_forward_is_left_to_its_living_worker(store, hands):
    job = await hold_one(store)
    hands.step(3600)

    assert await taken(store) == []
    hands.pass_by(10)
    assert await taken(store) == []
    await extend(store, job)
    hands.pass_by(20)
    assert await taken(store) == []


async def test_after_a_step_forward_a_lease_is_left_to_a_worker_that_extends_as_late_as_it_may(store, hands):
    job = await hold_one(store)
    hands.step(3600)
    assert await taken(store) == []
    hands.pass_by(MAX_EXTEND_AT * LEASE.total_seconds() + 0.5)  # half a second: how often the extending thread looks
    assert await taken(store) == []
    await extend(store, job)
    hands.pass_by(10)

    assert await taken(store) == []


async def test_after_a_step_forward_the_jobs_of_a_dead_worker_are_rescued_within_two_leases(store, hands):
    job = await hold_one(store)
    hands.step(3600)

    assert await taken(store) == []
    hands.pass_by(2 * LEASE.total_seconds())
    assert await taken(store) == [job.id]


async def test_without_a_step_an_expired_lease_is_taken_at_once(store, hands):
    job = await hold_one(store)
    hands.pass_by(LEASE.total_seconds() - 1)
    assert await taken(store) == []
    hands.pass_by(1)

    assert await taken(store) == [job.id]


async def test_a_person_who_rescues_does_not_wait_for_the_clock(store, hands):
    job = await hold_one(store)
    hands.step(3600)

    assert [rescued.job_id for rescued in await store.jobs.rescue(None, MANY)] == [job.id]


async def test_a_clock_set_back_keeps_a_dead_workers_lease_and_setting_it_right_does_not_hurt_a_living_one(
    store, hands
):
    job = await hold_one(store)
    hands.step(-3600)
    assert await taken(store) == []
    await extend(store, job)
    hands.step(3600)

    assert await taken(store) == []
