"""When a job's turn is: `run_at - priority * PRIORITY_STEP`.

A priority is a head start, not a class of its own: old work always gets its turn, and one index serves both.
"""

from __future__ import annotations

from datetime import timedelta

from holdfast.model.instants import span_micros

PRIORITY_STEP = timedelta(seconds=60)
MAX_PRIORITY = 100_000  # a head start of about ten weeks; also the largest handicap
_STEP = span_micros(PRIORITY_STEP)


def turn_of(run_at: int, priority: int) -> int:
    """Return the turn of a job that is due at an instant."""
    return run_at - priority * _STEP


def run_at_of(turn: int, priority: int) -> int:
    """Return the instant at which a job of this turn is due."""
    return turn + priority * _STEP
