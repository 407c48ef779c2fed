"""Names that a run uses in a store: queues, schema, sessions."""

from __future__ import annotations

from typing import Final

QUEUE: Final = "holdfast-torture"
RARE_QUEUE: Final = "holdfast-torture-knows_rare_task"
"""A queue that most workers do not serve."""
PAUSED: Final = "holdfast-torture-paused"
"""A queue that is paused at times."""
PACED: Final = "holdfast-torture-paced"
"""A queue with a rate."""
NARROW: Final = "holdfast-torture-narrow"
"""A queue of which few jobs run at once."""
USUAL: Final = (QUEUE, PAUSED, PACED, NARROW)
QUEUES: Final = (*USUAL, RARE_QUEUE)
SESSIONS: Final = "holdfast-torture"
"""The prefix of the session names of all workers and producers on PostgreSQL."""
ORDERED: Final = "ordered"
"""The task whose jobs have an order key."""
IN_GRAPHS: Final = ("in_graph", "transfer_in_graph")
"""The tasks whose jobs wait for others."""
_SCHEMA: Final = "holdfast"
_ENDING: Final = "_torture"


def schema_of_runs(schema: str | None) -> str:
    """Return the schema of runs on PostgreSQL: the one that a URL names, with an ending that no app uses."""
    chosen = schema or _SCHEMA
    return chosen if chosen.endswith(_ENDING) else chosen + _ENDING


def sessions_in(schema: str) -> str:
    """Return the application name of workers and producers in a schema; it distinguishes two runs in one database.

    PostgreSQL truncates such names to 63 bytes; without its ending the longest schema fits.
    """
    return f"{SESSIONS}.{schema.removesuffix(_ENDING)}"
