"""Instants inside Holdfast are integers: microseconds since 1970 in UTC.

Stores compare and add them without time zones; people see aware datetimes.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from holdfast.errors import ConfigError

MICROSECOND = timedelta(microseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_datetime(micros: int) -> datetime:
    """Return the aware UTC datetime of an instant."""
    return EPOCH + timedelta(microseconds=micros)


def to_micros(instant: datetime) -> int:
    """Return an aware datetime as microseconds; refuse a naive one."""
    if instant.tzinfo is None:
        message = (
            f"{instant.isoformat()} has no time zone, so it names no instant: "
            "pass an aware datetime, for example datetime.now(UTC) + timedelta(minutes=5)"
        )
        raise ConfigError(message)
    return (instant - EPOCH) // MICROSECOND


def span_micros(span: timedelta) -> int:
    """Return a duration in microseconds."""
    return span // MICROSECOND
