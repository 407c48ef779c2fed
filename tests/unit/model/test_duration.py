from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ConfigError
from holdfast.model.duration import LONGEST, to_span


@given(st.timedeltas(min_value=timedelta(0), max_value=LONGEST))
def test_a_timedelta_in_range_is_returned_as_it_is(span):
    assert to_span(span, "the delay") is span


@given(st.integers(0, int(LONGEST.total_seconds())) | st.floats(0, LONGEST.total_seconds()))
def test_a_number_is_a_span_of_seconds(seconds):
    assert to_span(seconds, "the delay") == timedelta(seconds=seconds)


@given(st.floats() | st.integers() | st.timedeltas())
def test_any_number_or_timedelta_gives_a_span_in_range_or_a_config_error(value):
    try:
        span = to_span(value, "the delay")
    except ConfigError:
        in_range = isinstance(value, timedelta) and timedelta(0) <= value <= LONGEST
        assert not in_range
    else:
        assert timedelta(0) <= span <= LONGEST


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        (-1, "pass 0 or more"),
        (timedelta(microseconds=-1), "pass 0 or more"),
        (-math.inf, "pass 0 or more"),
        (math.nan, "finite number"),
        (math.inf, "pass less"),
        (LONGEST + timedelta(microseconds=1), "pass less"),
        pytest.param(10**5000, "numbers are seconds, not milliseconds", id="enormous"),
        (True, "seconds as a number, or a timedelta"),
        ("5", "seconds as a number, or a timedelta"),
        (None, "seconds as a number, or a timedelta"),
    ],
)
def test_what_is_no_duration_is_refused_with_the_remedy(value: Any, remedy):
    with pytest.raises(ConfigError, match=remedy):
        to_span(value, "the delay")
