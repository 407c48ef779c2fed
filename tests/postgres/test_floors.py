"""Floors: where the next claim begins to look, and what that may cost."""

# ruff: noqa: ASYNC110 - another process tells nobody

from __future__ import annotations

import asyncio

from holdfast.store.backend import Backend
from holdfast.store.claim_floor import Floors
from holdfast.testing.conformance.base import a_job, claim, enqueue
from holdfast.testing.stores import open_store


class Stopwatch:
    """A clock that moves by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def _floors(stopwatch: Stopwatch, *, cost: float) -> Floors:
    """Return floors after a scan from the start of this cost that took the job at (10, 1) of lane 7."""
    floors = Floors(stopwatch)
    _, mark = floors.starts()
    floors.claimed(mark, {7: (10, 1)}, took=cost, scanned=True)
    return floors


def test_a_claim_begins_where_the_last_one_ended():
    assert _floors(Stopwatch(), cost=0.001).starts()[0] == {7: (10, 1)}


def test_scans_from_the_start_take_a_fiftieth_of_the_time():
    stopwatch = Stopwatch()
    floors = _floors(stopwatch, cost=0.4)
    stopwatch.now += 19.9
    assert floors.starts()[0] != {}
    assert not floors.came_short(found_none=False)
    stopwatch.now += 0.2
    assert floors.starts()[0] == {}


def test_a_claim_that_came_short_begins_at_the_start_next_time_if_that_is_quick():
    floors = _floors(Stopwatch(), cost=0.001)
    assert floors.came_short(found_none=False)
    assert floors.starts()[0] == {}


def test_with_nothing_else_to_do_they_may_take_a_fifth():
    stopwatch = Stopwatch()
    floors = _floors(stopwatch, cost=0.4)
    assert not floors.came_short(found_none=True)
    stopwatch.now += 2.1
    assert floors.came_short(found_none=True)


def test_a_job_that_comes_to_lie_below_lowers_the_floor():
    floors = _floors(Stopwatch(), cost=0.4)
    floors.lower([(7, 12, 5)])
    assert floors.starts()[0] == {7: (10, 1)}
    floors.lower([(7, 3, 9)])
    assert floors.starts()[0] == {7: (3, 9)}


def test_a_floor_that_was_lowered_while_a_claim_was_on_its_way_is_not_raised_by_it():
    floors = _floors(Stopwatch(), cost=0.4)
    _, mark = floors.starts()
    floors.lower([(7, 3, 9)])
    floors.claimed(mark, {7: (50, 2)}, took=0.1, scanned=False)
    assert floors.starts()[0] == {7: (3, 9)}


def test_of_two_claims_at_once_the_later_place_stays():
    floors = _floors(Stopwatch(), cost=0.4)
    _, mark = floors.starts()
    floors.claimed(mark, {7: (50, 2)}, took=0.1, scanned=False)
    floors.claimed(mark, {7: (30, 2)}, took=0.1, scanned=False)
    assert floors.starts()[0] == {7: (50, 2)}


async def test_a_job_that_another_process_puts_below_the_floor_is_found(backend: Backend, url: str):
    await enqueue(backend, a_job(), a_job())
    assert len(await claim(backend, 2)) == 2
    async with open_store(url) as other:
        (urgent,) = await enqueue(other, a_job(priority=5))
    async with asyncio.timeout(10):
        while not (found := await claim(backend, 10)):
            await asyncio.sleep(0.01)
    assert [job.id for job in found] == [urgent]
