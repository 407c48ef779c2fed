from __future__ import annotations

from holdfast.torture.draining import Draining
from holdfast.torture.plan import profile_of


def test_a_slow_store_is_not_stuck_while_anything_ends():
    draining = Draining(0, timeout=60)
    for minute in range(1, 100):
        draining.update(60 * minute, left=1000 - minute)
        assert not draining.is_stuck(60 * minute + 59)


def test_a_store_is_stuck_when_nothing_more_ends():
    draining = Draining(0, timeout=60)
    draining.update(10, left=5)
    draining.update(69, left=5)

    assert not draining.is_stuck(70)
    assert draining.is_stuck(70.1)


def test_work_that_begets_as_much_as_it_ends_is_stuck():
    draining = Draining(0, timeout=60)
    for second, left in enumerate([5, 9, 6, 5, 8] * 20):
        draining.update(second, left)

    assert draining.is_stuck(61)


def test_a_store_that_cannot_be_looked_at_is_stuck_in_the_end():
    assert Draining(0, timeout=60).is_stuck(61)


def test_more_jobs_than_a_profile_has_take_more_time_and_fewer_take_no_less():
    smoke = profile_of("smoke", one_writer=True)

    many, few = smoke.with_jobs(80_000), smoke.with_jobs(100)

    assert (many.jobs, many.seconds, many.limit) == (80_000, 100.0, smoke.limit + 100.0 - smoke.seconds)
    assert (few.jobs, few.seconds, few.limit) == (100, smoke.seconds, smoke.limit)
