"""Which workers are killed, and when."""

from __future__ import annotations

import random

import pytest

from holdfast.cli.demo.conductor import DemoSeat, Killings, SeatState
from holdfast.cli.demo.worker import DemoReport


def seats_of(count: int, *, holding: int = 10) -> list[DemoSeat]:
    seats = [DemoSeat(number) for number in range(1, count + 1)]
    for seat in seats:
        seat.state, seat.present = SeatState.WORKING, DemoReport(holding=holding)
    return seats


def play(kill: int, *, seed: int = 1, jobs: int = 1000, seats: list[DemoSeat] | None = None) -> list[tuple[int, int]]:
    """Let jobs end one by one and workers report in turn; return (jobs ended, number of the worker killed)."""
    killings = Killings(kill, jobs, random.Random(seed))
    seats = seats_of(4) if seats is None else seats
    killed: list[tuple[int, int]] = []
    for ended in range(jobs):
        seat = seats[ended % len(seats)]
        if killings.is_due(ended, seat, seats):
            killed.append((ended, seat.number))
            seat.is_doomed = False  # restarted at once
    return killed


@pytest.mark.parametrize("kill", [0, 1, 3, 20])
def test_as_many_are_killed_as_was_asked_and_none_in_the_beginning(kill):
    killed = play(kill)
    assert len(killed) == kill
    assert all(ended >= 100 for ended, _ in killed)


def test_the_seed_decides_who_is_killed_and_when():
    assert play(5, seed=3) == play(5, seed=3)
    assert play(5, seed=3) != play(5, seed=4)


def test_nobody_is_killed_who_holds_nothing():
    assert play(3, seats=seats_of(4, holding=0)) == []


def test_a_worker_is_not_doomed_twice():
    seats = seats_of(1)
    killings = Killings(2, 100, random.Random(1))
    assert killings.is_due(99, seats[0], seats)
    assert not killings.is_due(99, seats[0], seats)
    seats[0].is_doomed = False
    assert killings.is_due(99, seats[0], seats)


def test_a_seat_adds_up_what_all_its_workers_did():
    seat = DemoSeat(1)
    seat.present = DemoReport(done=5, failed_attempts=1, holding=3, used_attempts={1: 4, 2: 1})
    seat.vacated()
    seat.present = DemoReport(done=2, used_attempts={1: 2})
    assert seat.total == DemoReport(done=7, failed_attempts=1, used_attempts={1: 6, 2: 1})
