"""Instants are integers inside Holdfast: microseconds since 1970, in UTC.

Stores compare and add them without time zones. The public API uses aware datetimes.
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
    """Return an aware datetime as microseconds; raise `ConfigError` if it is naive or out of range in UTC."""
    if instant.utcoffset() is None:  # a tzinfo is not enough: it may have no offset
        message = (
            f"{instant.isoformat()} has no time zone, so it is ambiguous: "
            "pass an aware datetime, for example datetime.now(UTC) + timedelta(minutes=5)"
        )
        raise ConfigError(message)
    micros = (instant - EPOCH) // MICROSECOND
    if not _FIRST <= micros <= _LAST:
        message = f"{instant.isoformat()} is outside the years 1 to 9999 in UTC"
        raise ConfigError(f"{message}: pass an instant within that range")
    return micros


def span_micros(span: timedelta) -> int:
    """Return a duration in microseconds."""
    return span // MICROSECOND
