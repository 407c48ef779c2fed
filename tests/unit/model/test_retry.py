from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ConfigError
from holdfast.model.retry import (
    DEFAULT,
    ByException,
    Custom,
    Exponential,
    Fixed,
    Linear,
    RetryDecision,
    RetryPolicy,
    decide,
    policy_of,
)

attempts = st.integers(1, 10**9)
draws = st.floats(0, 1, exclude_max=True)
spans = st.floats(0, 3600)


def seconds(policy: RetryPolicy, attempt: int = 1, error: BaseException | None = None, draw: float = 0.5) -> float:
    delay = policy.delay(attempt, error, draw)
    assert delay is not None
    return delay.total_seconds()


def test_fixed_waits_the_same_each_time():
    assert [seconds(Fixed(5), attempt) for attempt in (1, 2, 50)] == [5, 5, 5]


def test_linear_grows_by_its_delay_up_to_its_cap():
    assert [seconds(Linear(10, 25), attempt) for attempt in (1, 2, 3, 10**9)] == [10, 20, 25, 25]


def test_exponential_without_jitter_multiplies_up_to_its_cap():
    policy = Exponential(1, 3, cap=20, jitter="none")
    assert [seconds(policy, attempt) for attempt in (1, 2, 3, 4, 10**9)] == [1, 3, 9, 20, 20]


def test_full_jitter_spreads_from_the_floor_to_the_ceiling():
    policy = Exponential(8, jitter="full", floor=2)
    assert [seconds(policy, 1, draw=draw) for draw in (0, 0.5)] == [2, 5]
    assert seconds(policy, 1, draw=0.999999) == pytest.approx(8, abs=1e-4)


def test_equal_jitter_keeps_half_of_the_ceiling():
    policy = Exponential(8, jitter="equal")
    assert [seconds(policy, 2, draw=draw) for draw in (0, 0.5)] == [8, 12]


def test_the_first_retry_comes_after_about_the_base_and_the_retries_of_many_jobs_are_spread():
    policy = Exponential(base=1)
    delays = [seconds(policy, 1, draw=number / 1000) for number in range(1000)]
    assert min(delays) == 0.5
    assert 0.99 < max(delays) < 1
    assert len(set(delays)) == 1000


@given(attempts, draws, spans, st.floats(1, 1000), st.sampled_from(["full", "equal", "none"]))
def test_exponential_stays_between_floor_and_cap_at_any_attempt(attempt, draw, base, factor, jitter):
    policy = Exponential(base, factor, cap=3600, jitter=jitter, floor=base / 2)
    assert base / 2 - 1e-5 <= seconds(policy, attempt, draw=draw) <= 3600


@given(attempts, draws)
def test_the_default_waits_a_second_at_least_and_an_hour_at_most(attempt, draw):
    assert 1 <= seconds(policy_of(None), attempt, draw=draw) <= 3600


def test_the_first_retry_by_default_comes_within_two_seconds():
    assert seconds(policy_of(), 1, draw=0) == 1
    assert seconds(policy_of(), 1, draw=0.999999) < 2.001


def test_the_most_specific_class_of_the_error_decides():
    policy = ByException({OSError: Fixed(5), ConnectionError: 7, Exception: Fixed(9)}, default=1)
    assert seconds(policy, error=ConnectionResetError()) == 7
    assert seconds(policy, error=FileNotFoundError()) == 5
    assert seconds(policy, error=ValueError()) == 9
    assert seconds(policy, error=KeyboardInterrupt()) == 1
    assert seconds(policy, error=None) == 1


def test_none_for_a_class_means_never_again():
    policy = ByException({ValueError: None, UnicodeError: 3}, default=1)
    assert policy.delay(1, ValueError(), 0.5) is None
    assert seconds(policy, error=UnicodeError()) == 3


def test_a_function_is_a_policy():
    policy = policy_of(lambda attempt, error: timedelta(seconds=attempt) if isinstance(error, OSError) else None)
    assert seconds(policy, 4, OSError()) == 4
    assert policy.delay(4, ValueError(), 0.5) is None


def test_numbers_timedeltas_and_policies_are_policies():
    fixed = Fixed(3)
    assert policy_of(fixed) is fixed
    assert seconds(policy_of(2.5)) == 2.5
    assert seconds(policy_of(timedelta(minutes=1))) == 60


# The same classes without their types, to be called as no type checker would let them.
_exponential: Any = Exponential
_by_exception: Any = ByException


async def _asynchronous(attempt: int, error: BaseException | None) -> float:
    return 1


@pytest.mark.parametrize(
    ("make", "remedy"),
    [
        (lambda: Fixed(-1), "pass 0 or more"),
        (lambda: Fixed(True), "pass seconds"),
        (lambda: Linear(10, 5), "raise it"),
        (lambda: _exponential(base="1"), "pass seconds"),
        (lambda: Exponential(factor=0.5), "from 1 to 1000"),
        (lambda: Exponential(factor=float("nan")), "from 1 to 1000"),
        (lambda: _exponential(factor="2"), "pass a number"),
        (lambda: _exponential(jitter="some"), "pass one of"),
        (lambda: Exponential(1, floor=2), "pass a floor"),
        (lambda: _by_exception({"ValueError": 1}), "not an exception class"),
        (lambda: _by_exception({int: 1}), "not an exception class"),
        (lambda: policy_of(True), "pass seconds"),
        (lambda: policy_of("soon"), "pass seconds, a timedelta, a policy"),
        (lambda: policy_of(Fixed), "pass an instance"),
        (lambda: policy_of(_asynchronous), "pass a plain function"),
    ],
)
def test_a_bad_setting_is_refused_with_the_remedy(make: Any, remedy):
    with pytest.raises(ConfigError, match=remedy):
        make()


def test_decide_gives_the_answer_of_a_sound_policy():
    assert decide(Fixed(5), 1, error=None, draw=0) == RetryDecision(timedelta(seconds=5))
    assert decide(Custom(lambda _attempt, _error: None), 1, error=None, draw=0) == RetryDecision(None)


class _Nonsense(RetryPolicy):
    def delay(self, attempt, error, draw) -> Any:
        return "tomorrow"

    def __repr__(self) -> str:
        raise RuntimeError


def _broken(attempt: int, error: BaseException | None) -> float:
    return 1 / 0


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        (Custom(_broken), "ZeroDivisionError"),
        (Custom(lambda _attempt, _error: "soon"), "'soon'"),  # type: ignore[arg-type, return-value]
        (Custom(lambda _attempt, _error: -1), "negative"),
        (_Nonsense(), "'tomorrow'"),
        (ByException({}, default=_broken), "ZeroDivisionError"),
    ],
)
def test_a_broken_policy_falls_back_to_the_default_and_says_so(policy, problem):
    decision = decide(policy, 3, error=None, draw=0.25)
    assert decision.delay == DEFAULT.delay(3, None, 0.25)
    assert decision.problem is not None
    assert problem in decision.problem


def test_a_policy_shows_its_settings():
    assert repr(ByException({OSError: Linear(1, 9), ValueError: None}, default=Fixed(5))) == (
        "ByException({OSError: Linear(1, cap=9), ValueError: None}, default=Fixed(5))"
    )
    assert repr(Custom(_broken)) == "Custom(_broken)"
    assert repr(DEFAULT) == "Exponential(2, 2, cap=3600, jitter='full', floor=1)"
