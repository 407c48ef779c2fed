"""How many jobs of a worker ended in which way."""

from __future__ import annotations

import msgspec


class Totals(msgspec.Struct, frozen=True):
    """The outcomes of the jobs that this worker claimed.

    `lost` counts lost leases, and jobs whose child process died. `abandoned` counts leases left to expire because the
    store could not be reached.
    """

    completed: int = 0
    retried: int = 0
    snoozed: int = 0
    failed: int = 0
    cancelled: int = 0
    lost: int = 0
    released: int = 0
    abandoned: int = 0

    def __str__(self) -> str:
        """Return the counts above zero, in words."""
        counts = msgspec.structs.asdict(self)
        return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count) or "no jobs"
