"""Which records of a job's attempts are kept: a job that retries for weeks stays small."""

from __future__ import annotations

from typing import Final

KEEP_FIRST: Final = 5
KEEP_LAST: Final = 20


def thinned(attempt: int) -> tuple[int, int] | None:
    """Return the attempts, (after, up to], whose records are dropped when this attempt's record is written."""
    return (KEEP_FIRST, attempt - KEEP_LAST) if attempt > KEEP_FIRST + KEEP_LAST else None
