"""Names that a run uses in a store: queues, schema, sessions."""

from __future__ import annotations

from typing import Final

QUEUE: Final = "holdfast-torture"
RARE_QUEUE: Final = "holdfast-torture-knows_rare_task"
"""A queue that most workers do not serve."""
PAUSED: Final = "holdfast-torture-paused"
"""A queue that is paused at times."""
USUAL: Final = (QUEUE, PAUSED)
QUEUES: Final = (*USUAL, RARE_QUEUE)
SESSIONS: Final = "holdfast-torture"
"""The prefix of the session names of all workers and producers on PostgreSQL."""
EFFECTS: Final = ("effect", "step")
ORDERED: Final = "ordered"
"""The task whose jobs have an order key."""
_SCHEMA: Final = "holdfast"
_BESIDE: Final = "_torture"


def schema_beside(schema: str | None) -> str:
    """Return the schema of torture runs on PostgreSQL: derived from the one in the URL, and used by runs only."""
    chosen = schema or _SCHEMA
    return chosen if chosen.endswith(_BESIDE) else chosen + _BESIDE


def sessions_in(schema: str) -> str:
    """Return the application name of workers and producers in a schema; it distinguishes two runs in one database.

    PostgreSQL truncates such names to 63 bytes; without its ending the longest schema fits.
    """
    return f"{SESSIONS}.{schema.removesuffix(_BESIDE)}"
