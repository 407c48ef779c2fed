"""The columns by which a job leaves the table of a state, and with which it enters one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.model.job import JobState

COUNTERS = ("attempt", "excused", "interrupted", "lost")
_ENDED = ("seq", "attempt", "excused", "lost", "finished_at", "reason")

LEAVE: Mapping[JobState, Sequence[str]] = {
    JobState.RUNNING: ("seq",),
    JobState.READY: ("lane_id", "turn", "seq"),
    JobState.SCHEDULED: ("run_at", "seq"),
    JobState.BLOCKED: ("seq",),
    JobState.FAILED: ("seq",),
    JobState.CANCELLED: ("seq",),
}
WAITING = ("seq", *COUNTERS, "followed")
PUT: Mapping[JobState, Sequence[str]] = {
    JobState.READY: ("lane_id", "turn", "seq", *COUNTERS, "followed"),
    JobState.SCHEDULED: ("run_at", "seq", "retrying", *COUNTERS, "followed"),
    JobState.FAILED: _ENDED,
    JobState.CANCELLED: _ENDED,
}


def columns_of(row: object, names: Sequence[str]) -> dict[str, object]:
    """Return attributes of a row as parameters of a statement."""
    return {name: getattr(row, name) for name in names}
