"""What every record of a history has, and the words that several kinds share."""

from __future__ import annotations

from enum import StrEnum

import msgspec


def _kind(name: str) -> str:
    """Return EnqueueCalled as enqueue_called."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


class Takes(StrEnum):
    """Where the effect of a task is written, and so how often it may be there."""

    TRANSACTION = "transaction"  # in ctx.transaction(), once and with the completion
    OUTSIDE = "outside"  # at the server of outside effects, at least once
    NOTHING = "nothing"


class Believed(StrEnum):
    """What the process that ran an attempt believed of its end, before the store had its say."""

    COMPLETED = "completed"
    RETRIED = "retried"
    SNOOZED = "snoozed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LEASE_LOST = "lease_lost"
    INTERRUPTED = "interrupted"  # broken off: a shutdown, a time limit
    UNKNOWN = "unknown"  # an answer of the store did not arrive


class HistoryRecord(
    msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True, tag_field="kind", tag=_kind
):
    """What every record has."""

    at_us: int
    store_us: int | None = None


class JobEvent(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """What every record of one attempt has."""

    job: str
    fence: int
