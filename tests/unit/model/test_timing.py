from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.model.allocation import Timing

SECOND = timedelta(seconds=1)


def test_a_timing_takes_seconds_as_well_as_timedeltas():
    timing = Timing(heartbeat_every=2, ttl=12.5, grace=3 * SECOND)

    assert (timing.heartbeat_every, timing.ttl, timing.grace) == (2 * SECOND, 12.5 * SECOND, 3 * SECOND)
    assert timing == Timing(heartbeat_every=2 * SECOND, ttl=12.5 * SECOND, grace=3)


def test_a_drain_of_none_lasts_as_long_as_it_needs():
    assert Timing(drain=None).drain is None
    assert Timing(drain=4).drain == 4 * SECOND


@pytest.mark.parametrize("given", ["1 s", None, True, -1, float("nan")])
@pytest.mark.parametrize("field", [name for name in Timing.__struct_fields__ if name != "drain"])
def test_what_is_no_duration_is_refused_by_its_name(field, given):
    spans: dict[str, Any] = {field: given}

    with pytest.raises(ConfigError, match=f"^{field} is "):
        Timing(**spans)


def test_a_recovery_is_given_in_seconds_or_as_a_timedelta():
    assert Timing.for_recovery(timedelta(seconds=30)) == Timing.for_recovery(30)
    with pytest.raises(ConfigError, match="too short"):
        Timing.for_recovery(timedelta(seconds=1))
    with pytest.raises(ConfigError, match="recovery is 'soon', not a duration"):
        Timing.for_recovery("soon")  # type: ignore[arg-type]
