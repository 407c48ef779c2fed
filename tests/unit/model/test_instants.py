from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo

import pytest

from holdfast.errors import ConfigError
from holdfast.model.instants import to_datetime, to_micros

FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
EAST, WEST = timezone(timedelta(hours=12)), timezone(timedelta(hours=-12))


class Nowhere(tzinfo):
    """A time zone without an offset: what carries it is naive all the same."""

    def utcoffset(self, when: datetime | None) -> None: ...
    def dst(self, when: datetime | None) -> None: ...
    def tzname(self, when: datetime | None) -> None: ...


@pytest.mark.parametrize(
    "instant",
    [
        FIRST,
        LAST,
        datetime(2026, 3, 1, tzinfo=EAST),
        datetime(1900, 1, 1, tzinfo=WEST),
        datetime.max.replace(tzinfo=EAST),
    ],
)
def test_an_instant_is_given_back_as_it_was_given(instant):
    assert to_datetime(to_micros(instant)) == instant


@pytest.mark.parametrize("instant", [datetime.max.replace(tzinfo=WEST), datetime.min.replace(tzinfo=EAST)])
def test_an_instant_that_lies_beyond_the_years_of_datetimes_in_utc_is_refused(instant):
    with pytest.raises(ConfigError, match=r"is outside the years 1 to 9999 in UTC: pass an instant within"):
        to_micros(instant)


@pytest.mark.parametrize("zone", [None, Nowhere()])
def test_what_has_no_offset_names_no_instant(zone):
    with pytest.raises(ConfigError, match="has no time zone, so it is ambiguous: pass an aware datetime"):
        to_micros(datetime(2030, 1, 1, tzinfo=zone))
