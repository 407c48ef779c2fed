"""The names of a run: its queues, its schema, its sessions."""

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
"""What the names of all sessions of workers and producers on PostgreSQL begin with."""
ORDERED: Final = "ordered"
"""The task whose jobs have an order_key."""
_SCHEMA: Final = "holdfast"
_ENDING: Final = "_torture"


def schema_of_runs(schema: str | None) -> str:
    """Return the schema of runs on PostgreSQL: the one that a URL names, with an ending that no app uses."""
    chosen = schema or _SCHEMA
    return chosen if chosen.endswith(_ENDING) else chosen + _ENDING


def sessions_in(schema: str) -> str:
    """Return the application name of workers and producers in a schema of runs: two in one database differ.

    PostgreSQL cuts such names at 63 bytes; without its ending the longest schema leaves room.
    """
    return f"{SESSIONS}.{schema.removesuffix(_ENDING)}"
