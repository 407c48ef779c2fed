"""What the conductor needs of a store besides Holdfast's own verbs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

import msgspec

from holdfast.errors import ConfigError
from holdfast.model.turn import run_at_of
from holdfast.torture.events import AttemptRow, EffectRow, JobRow
from holdfast.torture.history import now_us
from holdfast.torture.names import EFFECTS

STATES = ("scheduled", "blocked", "ready", "running", "completed", "failed", "cancelled")
LEFT = ("scheduled", "blocked", "ready", "running")
FOREIGN = {"job": "count_foreign", "category": "count_foreign_streams"}
"""Tables of Holdfast that may hold what is not of a run, and the statements that count it."""
TABLES = (*EFFECTS, "stream_effect")
"""The tables that a run makes."""
MADE = "torture_made"
"""A table that stands where a run has made the file or the schema: these alone are ever removed as a whole."""
INSTALLED = frozenset(
    {
        *("meta", "queue", "lane", "job", "key_line", "attempt", "worker", *STATES),
        *("category", "head", "event", "trimmed_stream", "consumer", "allocation", "parked", "node", "leadership"),
        *("transition", MADE, *(f"torture_{name}" for name in TABLES)),
    }
)
"""The tables of Holdfast and of runs that both dialects have."""
CLEARING = (
    *((state, "clear_jobs") for state in STATES),
    ("attempt", "clear_jobs"),
    ("key_line", "clear_queues"),
    *((table, "clear_counts") for table in ("count", "tally", "minute_count")),
    ("job", "clear_jobs"),
    ("lane", "clear_queues"),
    ("queue", "clear_queues"),
    ("worker", "clear_workers"),
    ("node", "clear_nodes"),
    *((table, "clear_consumers") for table in ("allocation", "parked", "transition", "consumer")),
    *(
        (table, "clear_categories")
        for table in ("allocation", "parked", "transition", "event", "trimmed_stream", "head", "category")
    ),
)
"""The tables of Holdfast that hold rows of runs, each with the statement that removes those alone, in this order."""
CLEARED = "The tables of the run are gone, and so are its jobs and events; nothing else was removed."
NOTHING = "There was nothing to remove."


class Reserved(ConfigError):  # noqa: N818 - reads as the sentence it states
    """Another run goes on there."""

    def __init__(self, shown: str) -> None:
        super().__init__(
            f"another torture run goes on on {shown}: wait for its end, or name another database, schema or file"
        )


class Leftovers(msgspec.Struct, frozen=True, kw_only=True):
    """What is still there after all workers have ended, and should not be."""

    leases: int = 0
    transactions: int = 0
    connections: int = 0
    integrity: str = ""


class Target(Protocol):
    """A store under torture. Every call opens a connection of its own, and closes it."""

    kind: str
    url: str
    """Where Holdfast finds the store; the tables of the run are there, and nowhere else."""

    @property
    def shown(self) -> str:
        """The URL without its password."""
        ...

    def reserved(self) -> AbstractContextManager[None]:
        """Keep other runs away for as long as this lasts; raises `Reserved` if there is one."""
        ...

    def foreign(self) -> int:
        """Count the jobs, categories and consumers that are not of a run, and whatever else lies beside their tables.

        0 where there is no store yet.
        """
        ...

    def prepare(self) -> None:
        """Make the tables of effects and steps, empty; Holdfast's own tables are there."""
        ...

    def wipe(self) -> str:
        """Remove what earlier runs have left, before this one, or all of this run after it; say what was done.

        What was there before the first run stays, and so does everything of others. Raises `ConfigError` if what others
        have made elsewhere stands on what is to be removed.
        """
        ...

    def clock(self) -> int:
        """Return the store's clock, in microseconds."""
        ...

    def counts(self) -> Mapping[str, int]:
        """Return how many jobs of the run stand in each state, read in one snapshot."""
        ...

    def effects_seen(self, after: int) -> tuple[int, int]:
        """Return the last number among the effects, and how many of those after `after` are there twice."""
        ...

    def rows(self) -> Iterator[JobRow]:
        """Go over all jobs of the run, once for each state that shows them."""
        ...

    def effects(self) -> Iterator[EffectRow]:
        """Go over all effects."""
        ...

    def wrong_steps(self) -> list[tuple[str, str]]:
        """Return jobs whose steps or order are wrong, and how.

        A step is there once under a fence, and under that of the effect; effects of a key are in the order of enqueues.
        """
        ...

    def leftovers(self) -> Leftovers:
        """Look for what a run should not leave behind."""
        ...

    def is_encrypted(self) -> bool:
        """Tell whether what is said to the store cannot be read on the way."""
        ...

    def held_snapshot(self) -> AbstractContextManager[object]:
        """Hold a snapshot open, as a backup or a forgotten session does."""
        ...

    def versions(self) -> dict[str, str]:
        """Return what to tell of the store in a report: versions and settings; no secrets."""
        ...


def job_row(row: tuple[Any, ...], attempts: Iterable[AttemptRow]) -> JobRow:
    """Return a record of a row as both dialects select it."""
    (job, state, attempt, max_attempts, seq, completions, worker, turn, priority, enqueued, finished, reason, headers,
     queue, task) = row  # fmt: skip
    return JobRow(
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
        call=json.loads(headers).get("call", "") if headers else "",
        queue=queue,
        task=task,
        attempts=tuple(attempts),
    )


def attempt_row(row: tuple[Any, ...]) -> AttemptRow:
    """Return an attempt as both dialects select it, after the seq of its job."""
    attempt, outcome, worker, started, ended, error = row
    return AttemptRow(attempt, outcome, worker, started, ended, error or "")


def joined(jobs: Iterator[tuple[Any, ...]], attempts: Iterator[tuple[Any, ...]]) -> Iterator[JobRow]:
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
                    kept.append(attempt_row(pending[1:]))
                pending = next(attempts, None)
        yield job_row(row, kept)


def effect_row(row: tuple[Any, ...]) -> EffectRow:
    """Return an effect as both dialects select it."""
    job, fence, attempt, worker, number = row
    return EffectRow(at_us=now_us(), job=job, fence=fence, attempt=attempt, worker=worker, seq=number)


def wrong(
    doubled: Iterable[tuple[Any, ...]], missing: Iterable[tuple[Any, ...]], early: Iterable[tuple[Any, ...]]
) -> list[tuple[str, str]]:
    """Say in words what is wrong with steps and order."""
    return [
        *((job, f"its step is there twice under fence {fence}") for job, fence in doubled),
        *((job, "its effect is there without the step of the same attempt") for (job,) in missing),
        *((job, "its effect came after that of a later job of its order_key") for (job,) in early),
    ]
