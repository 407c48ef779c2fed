"""How much history a store keeps about live records, so that it does not grow with time.

Finished jobs are not covered here: their retention is a user setting (`store.values.Retention`).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

KEEP_FIRST: Final = 5
"""Of a job's recorded attempts, this many of the oldest are kept: they show how the failure began."""

KEEP_LAST: Final = 20
"""Of a job's recorded attempts, this many of the newest are kept; those between the first and the last are deleted."""

FORGET_WORKERS_AFTER: Final = timedelta(days=1)
"""A worker that has sent no heartbeat for this long is removed from the list of workers."""

FORGET_NODES_AFTER: Final = timedelta(days=1)
"""A node that has sent no heartbeat for this long is removed from the list of nodes, provided that it owns no share."""

KEEP_TRANSITIONS: Final = 1000
"""How many of the latest state transitions of shares are kept, for diagnosis."""
