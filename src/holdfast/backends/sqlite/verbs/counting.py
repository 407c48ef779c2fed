"""Counts per minute, queue and task, for charts: one small upsert per batch."""

from __future__ import annotations

from holdfast.backends.sqlite.connection import Tx

MINUTE = 60_000_000


def minute_of(now: int) -> int:
    """Return the instant at which the minute of `now` began."""
    return now - now % MINUTE


def count(
    tx: Tx,
    lane_id: object,
    *,
    enqueued: int = 0,
    retried: int = 0,
    failed: int = 0,
    cancelled: int = 0,
    lost: int = 0,
) -> None:
    """Add to the counts of the present minute."""
    tx.run(
        "count_one",
        {
            "minute": minute_of(tx.now),
            "lane_id": lane_id,
            "enqueued": enqueued,
            "retried": retried,
            "failed": failed,
            "cancelled": cancelled,
            "lost": lost,
        },
    )
