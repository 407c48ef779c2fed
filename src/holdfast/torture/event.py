"""The base of all history records, and enums that several kinds share."""

from __future__ import annotations

from enum import StrEnum

import msgspec


def _kind(name: str) -> str:
    """Return EnqueueCalled as enqueue_called."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


class Takes(StrEnum):
    """Where the effect of a task is written, and so how often it may exist."""

    TRANSACTION = "transaction"  # in ctx.transaction(), once and with the completion
    OUTSIDE = "outside"  # at the outside server, at least once
    NOTHING = "nothing"


class ObservedOutcome(StrEnum):
    """The outcome of an attempt as its own process saw it, before the store's verdict."""

    COMPLETED = "completed"
    RETRIED = "retried"
    SNOOZED = "snoozed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LEASE_LOST = "lease_lost"
    INTERRUPTED = "interrupted"  # interrupted by a shutdown or a timeout
    UNKNOWN = "unknown"  # a reply of the store was lost


class HistoryRecord(
    msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True, tag_field="kind", tag=_kind
):
    """The base of all records."""

    at_us: int
    store_us: int | None = None


class JobEvent(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """The base of all records of one attempt."""

    job: str
    fence: int
