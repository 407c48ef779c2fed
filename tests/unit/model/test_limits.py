"""The rules of limits: what can be written, the rate, and which jobs a claim may take."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ConfigError
from holdfast.model.limits import (
    LanePlace,
    Limit,
    LimitKey,
    LimitUse,
    StartRate,
    next_wait,
    parsed_rate,
    share_out,
    shown_rate,
    taken_by,
)

SECOND = 1_000_000
MAIL = LimitKey("queue", "mail")
GREET = LimitKey("task", "greet")


def use(**values: Any) -> LimitUse:
    given: dict[str, Any] = {
        "kind": "queue", "name": "mail", "max_running": None, "rate_jobs": None, "rate_span": None, "rate_burst": None,
        "rate_at": 0, "running": 0, "now": 10 * SECOND,
    }  # fmt: skip
    return LimitUse(**{**given, **values})


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("100/m", StartRate(100, 60 * SECOND)),
        ("5/s", StartRate(5, SECOND)),
        ("1/10s", StartRate(1, 10 * SECOND)),
        ("3/h", StartRate(3, 3600 * SECOND)),
        ("9/2d", StartRate(9, 2 * 86400 * SECOND)),
    ],
)
def test_a_rate_is_read_and_shown_as_it_was_written(text: str, rate: StartRate):
    assert parsed_rate(text) == rate
    assert shown_rate(rate) == text


@pytest.mark.parametrize("text", ["", "100", "100/x", "0/s", "1/0s", "-1/s", "1.5/s", "100 / m", "5/ms", 100, None])
def test_a_rate_that_cannot_be_read_is_refused_with_the_form(text: object):
    with pytest.raises(ConfigError, match='write jobs per time, as "100/m"'):
        parsed_rate(text)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "needs running"),
        ({"running": 0}, "pause the queue or task"),
        ({"running": -1}, "at least 1"),
        ({"running": True}, "at least 1"),
        ({"running": "5"}, "at least 1"),
        ({"rate": "1/s", "burst": 0}, "pause"),
        ({"running": 1, "burst": 5}, "without a rate"),
        ({"rate": "often"}, "cannot be read"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(settings: dict[str, Any], said: str):
    with pytest.raises(ConfigError, match=said):
        Limit(**settings)


@given(
    jobs=st.integers(1, 50),
    span=st.sampled_from([SECOND, 60 * SECOND]),
    burst=st.integers(1, 5),
    pauses=st.lists(st.integers(0, 3 * SECOND), max_size=30),
    wanted=st.integers(1, 6),
)
def test_a_rate_is_never_exceeded_in_any_window(jobs: int, span: int, burst: int, pauses: list[int], wanted: int):
    now, rate_at = 0, 0
    starts: list[int] = []
    for pause in pauses:
        now += pause
        state = use(rate_jobs=jobs, rate_span=span, rate_burst=burst, rate_at=rate_at, now=now)
        taken = min(wanted, state.room)
        rate_at = state.rate_after(taken) if taken else rate_at
        starts += [now] * taken
    for first, begin in enumerate(starts):
        for last in range(first, len(starts)):
            allowed = burst + (starts[last] - begin) * jobs / span
            assert last - first + 1 <= allowed + 1e-9


@given(ahead=st.integers(0, 10 * SECOND), burst=st.integers(1, 4), jobs=st.integers(1, 9))
def test_after_the_wait_there_is_room_and_just_before_there_is_none(ahead: int, burst: int, jobs: int):
    state = use(rate_jobs=jobs, rate_span=SECOND, rate_burst=burst, rate_at=10 * SECOND + ahead)
    wait = state.wait_after(0)
    assert wait is not None
    assert state._replace(now=state.now + wait).room >= 1
    if wait:
        assert state._replace(now=state.now + wait - 1).room == 0


def test_without_a_rate_only_the_end_of_a_job_makes_room():
    full = use(max_running=2, running=2)
    assert (full.room, full.wait_after(0)) == (0, None)
    assert next_wait([full], {}, [MAIL]) is None
    assert use(max_running=2, running=5).room == 0
    assert use(max_running=2, rate_at=99 * SECOND).wait_after(1) == 0  # a rate that it had before


@pytest.mark.parametrize(
    ("limit", "shown"),
    [
        (Limit(running=3), "3 running"),
        (Limit(rate="100/m"), "100/m"),
        (Limit(running=3, rate="100/m", burst=5), "3 running, 100/m burst 5"),
    ],
)
def test_a_limit_is_shown_as_it_is_read_in_lists_and_logs(limit: Limit, shown: str):
    assert str(limit) == shown


def test_jobs_are_chosen_by_turn_and_those_over_a_limit_are_passed_over():
    lanes = {1: ("mail", "greet"), 2: ("mail", "other"), 3: ("sale", "greet")}
    front = [LanePlace(turn, seq, lane) for turn, seq, lane in [(1, 1, 1), (2, 2, 1), (3, 3, 3), (4, 4, 2), (5, 5, 3)]]
    shares = share_out(front, lanes, {MAIL: 1, GREET: 2}, limit=9, slots=9)
    assert (shares.by_lane, shares.refused) == ({1: 1, 3: 1}, frozenset({MAIL, GREET}))
    assert share_out(front, lanes, {MAIL: 5}, limit=2, slots=9).by_lane == {1: 2}
    assert share_out(front, lanes, {}, limit=9, slots=0).by_lane == {1: 2, 3: 2, 2: 1}


def test_a_claimer_without_slots_takes_none_of_limited_lanes():
    lanes = {1: ("mail", "greet"), 2: ("sale", "greet")}
    front = [LanePlace(1, 1, 1), LanePlace(2, 2, 2)]
    shares = share_out(front, lanes, {MAIL: 5}, limit=9, slots=0)
    assert (shares.by_lane, shares.refused, shares.is_held_back) == ({2: 1}, frozenset(), True)


def test_claimed_jobs_are_counted_for_each_limit_that_concerns_them():
    uses = [use(), use(kind="task", name="greet")]
    assert taken_by([("mail", "greet"), ("mail", "other"), ("sale", "greet")], uses) == {MAIL: 2, GREET: 2}
