"""What the success rate predicts, and whether what was seen fits it."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.demo.attempt_distribution import AttemptDistribution
from holdfast.cli.demo.plan import DemoPlan


def drawn(plan: DemoPlan) -> tuple[Counter[int], int]:
    """Return how many jobs took how many used_attempts, and how many were given up."""
    used_attempts = Counter[int]()
    failed = 0
    for number in range(1, plan.jobs + 1):
        for attempt in range(1, plan.max_attempts + 1):
            if plan.succeeds(number, attempt):
                used_attempts[attempt] += 1
                break
        else:
            failed += 1
    return used_attempts, failed


def plan_of(*, jobs: int = 5000, success_rate: float = 0.9, max_attempts: int = 10, seed: int = 1) -> DemoPlan:
    return DemoPlan(jobs=jobs, success_rate=success_rate, max_attempts=max_attempts, work_timeout=5, seed=seed)


@given(st.floats(0, 1), st.integers(1, 50))
def test_the_chances_of_all_ends_add_up_to_one(success_rate, limit):
    distribution = AttemptDistribution(success_rate, limit)
    total = sum(distribution.chance(used_attempts) for used_attempts in range(1, limit + 1)) + distribution.failing
    assert total == pytest.approx(1)


def test_no_work_takes_no_try_or_more_than_the_limit():
    distribution = AttemptDistribution(0.5, 3)
    assert distribution.chance(0) == distribution.chance(4) == 0


@pytest.mark.parametrize(("success_rate", "limit"), [(0.9, 10), (0.5, 4), (0.1, 3), (1.0, 5), (0.0, 2)])
def test_tries_drawn_at_the_rate_fit_the_law(success_rate, limit):
    fitting = 0
    for seed in range(5):
        used_attempts, failed = drawn(plan_of(jobs=2000, success_rate=success_rate, max_attempts=limit, seed=seed))
        fitting += AttemptDistribution(success_rate, limit).fits(used_attempts, failed)
    assert fitting == 5


@pytest.mark.parametrize("other_rate", [0.85, 0.95])
def test_tries_drawn_at_another_rate_do_not_fit(other_rate):
    used_attempts, failed = drawn(plan_of(success_rate=other_rate))
    assert not AttemptDistribution(0.9, 10).fits(used_attempts, failed)


def test_attempts_raised_by_one_each_do_not_fit():
    used_attempts, failed = drawn(plan_of())
    raised = {number + 1: count for number, count in used_attempts.items()}
    assert not AttemptDistribution(0.9, 10).fits(raised, failed)


def test_tries_beyond_the_limit_do_not_fit():
    assert not AttemptDistribution(0.9, 3).fits({4: 1}, 0)


def test_works_given_up_too_early_do_not_fit():
    assert not AttemptDistribution(0.9, 10).fits({1: 4500}, 500)


def test_nothing_done_fits_everything():
    assert AttemptDistribution(0.9, 10).fits({}, 0)
    assert AttemptDistribution(0.9, 10).highest(0) == (0, 0)


def test_a_law_that_holds_is_seldom_called_a_misfit():
    distribution = AttemptDistribution(0.7, 6)
    chance = random.Random(11)
    numbers, chances = (
        [1, 2, 3, 4, 5, 6, 0],
        [*(distribution.chance(used_attempts) for used_attempts in range(1, 7)), distribution.failing],
    )
    misfits = 0
    for _ in range(500):
        seen = Counter(chance.choices(numbers, chances, k=500))
        failed = seen.pop(0, 0)
        misfits += not distribution.fits(seen, failed)
    assert misfits <= 5


def test_the_highest_number_of_tries_lies_where_it_is_expected():
    distribution = AttemptDistribution(0.9, 10)
    assert distribution.highest(100_000) == (5, 8)
    assert distribution.highest(1) == (1, 3)
    assert AttemptDistribution(1.0, 10).highest(100_000) == (1, 1)
    assert AttemptDistribution(0.0, 10).highest(5) == (10, 10)
    assert AttemptDistribution(0.9, 3).highest(100_000) == (3, 3)


@given(st.floats(0.05, 0.95), st.integers(1, 20), st.integers(1, 10**7))
def test_the_bounds_of_the_highest_are_in_order_and_within_the_limit(success_rate, limit, jobs):
    low, high = AttemptDistribution(success_rate, limit).highest(jobs)
    assert 1 <= low <= high <= limit


def test_a_count_near_its_mean_is_allowed_and_one_far_off_is_not():
    distribution = AttemptDistribution(0.9, 10)
    assert distribution.allows(10_000, 100_000, 0.1)
    assert distribution.allows(10_250, 100_000, 0.1)
    assert not distribution.allows(10_500, 100_000, 0.1)
    assert distribution.allows(0, 100_000, 1e-10)
    assert not distribution.allows(5, 100_000, 1e-10)


def test_the_seed_alone_decides_every_try():
    assert drawn(plan_of(seed=7)) == drawn(plan_of(seed=7))
    assert drawn(plan_of(seed=7)) != drawn(plan_of(seed=8))
