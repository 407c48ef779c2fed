"""What a run is called where it meets others: its queues, its schema, its sessions."""

from __future__ import annotations

from typing import Final

QUEUE: Final = "holdfast-torture"
STRANGERS: Final = "holdfast-torture-strangers"
"""A queue that most workers do not serve."""
PAUSED: Final = "holdfast-torture-paused"
"""A queue that is paused now and then."""
USUAL: Final = (QUEUE, PAUSED)
QUEUES: Final = (*USUAL, STRANGERS)
SESSIONS: Final = "holdfast-torture"
"""The application name under which workers and producers connect to PostgreSQL."""
EFFECTS: Final = ("effect", "step")
ORDERED: Final = "ordered"
"""The task whose jobs have an order_key."""
_SCHEMA: Final = "holdfast"
_BESIDE: Final = "_torture"


def schema_beside(schema: str | None) -> str:
    """Return the schema of runs on PostgreSQL: beside the one that a URL names, and theirs alone."""
    chosen = schema or _SCHEMA
    return chosen if chosen.endswith(_BESIDE) else chosen + _BESIDE
