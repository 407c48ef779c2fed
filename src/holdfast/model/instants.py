"""Instants inside Holdfast are integers: microseconds since 1970 in UTC.

Stores compare and add them without time zones; people see aware datetimes.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from holdfast.errors import ConfigError

MICROSECOND = timedelta(microseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST = (datetime.min.replace(tzinfo=UTC) - EPOCH) // MICROSECOND
_LAST = (datetime.max.replace(tzinfo=UTC) - EPOCH) // MICROSECOND


def to_datetime(micros: int) -> datetime:
    """Return the aware UTC datetime of an instant."""
    return EPOCH + timedelta(microseconds=micros)


def to_micros(instant: datetime) -> int:
    """Return an aware datetime as microseconds; refuse a naive one, and one that cannot be given back in UTC."""
    if instant.utcoffset() is None:  # with a tzinfo, too: it may know of no offset
        message = (
            f"{instant.isoformat()} has no time zone, so it names no instant: "
            "pass an aware datetime, for example datetime.now(UTC) + timedelta(minutes=5)"
        )
        raise ConfigError(message)
    micros = (instant - EPOCH) // MICROSECOND
    if not _FIRST <= micros <= _LAST:
        message = f"{instant.isoformat()} lies beyond the years 1 to 9999 in UTC, in which instants are kept"
        raise ConfigError(f"{message}: pass one within them")
    return micros


def span_micros(span: timedelta) -> int:
    """Return a duration in microseconds."""
    return span // MICROSECOND
