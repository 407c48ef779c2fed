"""What a run of jobs reads of its target."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.model.instants import to_micros
from holdfast.model.schedule_definition import NAME_HEADER, TIME_HEADER
from holdfast.model.turn import run_at_of
from holdfast.torture.events import AttemptRow, DumpedJob, EffectRow
from holdfast.torture.history import now_us

if TYPE_CHECKING:
    from holdfast.torture.target.base import Query

STATES = ("scheduled", "blocked", "ready", "running", "completed", "failed", "cancelled")
LEFT = ("scheduled", "blocked", "ready", "running")


class JobReader:
    """Reads the jobs, effects and steps of a run."""

    def __init__(self, snapshot: Callable[[], AbstractContextManager[Query]]) -> None:
        self._snapshot = snapshot

    def counts(self) -> dict[str, int]:
        """Return how many jobs are in each state."""
        with self._snapshot() as query:
            return {state: query.all("count_state", state=state)[0][0] for state in STATES}

    def effects_seen(self, after: int) -> tuple[int, int]:
        """Return the last number among the effects, and how many of those after `after` are doubles."""
        with self._snapshot() as query:
            return query.all("last_effect")[0][0], query.all("doubled_effects", after=after)[0][0]

    def rows(self) -> Iterator[DumpedJob]:
        """Go over all jobs, once for each state that shows them."""
        with self._snapshot() as query:
            yield from joined(query.each("all_jobs"), query.each("all_attempts"))

    def effects(self) -> Iterator[EffectRow]:
        """Go over all effects."""
        with self._snapshot() as query:
            for job, fence, attempt, worker, number in query.each("all_effects"):
                yield EffectRow(at_us=now_us(), job=job, fence=fence, attempt=attempt, worker=worker, seq=number)

    def wrong_steps(self) -> list[tuple[str, str]]:
        """Return jobs whose steps or order are wrong, and how.

        A step is there once under a fence, and under that of the effect; effects of an order_key are in the order of
        the enqueues.
        """
        with self._snapshot() as query:
            doubled, missing, early = map(query.all, ("doubled_steps", "missing_steps", "wrong_order"))
        return [
            *((job, f"its step is there twice under fence {fence}") for job, fence in doubled),
            *((job, "its effect is there without the step of the same attempt") for (job,) in missing),
            *((job, "its effect came after that of a later job of its order_key") for (job,) in early),
        ]


def joined(jobs: Iterator[tuple[Any, ...]], attempts: Iterator[tuple[Any, ...]]) -> Iterator[DumpedJob]:
    """Join jobs and their attempts, both in the order of seq, without keeping more than one job."""
    pending = next(attempts, None)
    kept_seq: int | None = None
    kept: list[AttemptRow] = []
    for row in jobs:
        seq: int = row[4]
        if seq != kept_seq:
            kept_seq, kept = seq, []
            while pending is not None and pending[0] <= seq:
                if pending[0] == seq:
                    kept.append(_attempt_row(pending[1:]))
                pending = next(attempts, None)
        yield _job_row(row, kept)


def _job_row(row: tuple[Any, ...], attempts: Iterable[AttemptRow]) -> DumpedJob:
    (job, state, attempt, max_attempts, seq, completions, worker, turn, priority, enqueued, finished, reason, headers,
     queue, task) = row  # fmt: skip
    given: dict[str, str] = json.loads(headers) if headers else {}
    return DumpedJob(
        at_us=now_us(),
        job=str(job),
        state=state,
        attempt=attempt,
        max_attempts=max_attempts,
        seq=seq,
        completions=completions,
        worker=worker or "",
        run_us=run_at_of(turn, priority),
        enqueued_us=enqueued,
        finished_us=finished or 0,
        reason=reason or "",
        call=given.get("call", ""),
        schedule=given.get(NAME_HEADER, ""),
        nominal_us=to_micros(datetime.fromisoformat(given[TIME_HEADER])) if TIME_HEADER in given else 0,
        queue=queue,
        task=task,
        attempts=tuple(attempts),
    )


def _attempt_row(row: tuple[Any, ...]) -> AttemptRow:
    attempt, outcome, worker, started, ended, error = row
    return AttemptRow(attempt, outcome, worker, started, ended, error or "")
