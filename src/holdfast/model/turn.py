"""The claim order of a queue: jobs are claimed by ascending turn, `run_at - priority * PRIORITY_STEP`.

```text
   run_at   priority   turn
   12:05    10         11:55   claimed first, as soon as it is due: a head start of ten minutes
   12:00     0         12:00
   12:30    10         12:20   too late to overtake the job of 12:00
```

A priority is a head start, not a separate class: an old job cannot be overtaken forever, and one index serves priority
and due time together.
"""

from __future__ import annotations

from datetime import timedelta

from holdfast.model.instants import span_micros, to_micros
from holdfast.model.job import NewJob

PRIORITY_STEP = timedelta(seconds=60)
MAX_PRIORITY = 100_000  # a head start of about ten weeks; negative: a delay of at most that
_STEP = span_micros(PRIORITY_STEP)


def turn_of(run_at: int, priority: int) -> int:
    """Return the turn of a job that is due at `run_at`."""
    return run_at - priority * _STEP


def run_at_of(turn: int, priority: int) -> int:
    """Return when a job with this turn is due; the inverse of `turn_of`."""
    return turn + priority * _STEP


def due_at(job: NewJob, now: int) -> int:
    """Return when a job that is enqueued at `now` is due."""
    if job.run_at is not None:
        return to_micros(job.run_at)
    return now if job.delay is None else now + span_micros(job.delay)
