"""Check a history: once through the files, then job by job, then the run as a whole."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from holdfast.torture.checker.invariant import Invariant
from holdfast.torture.checker.job import Entry, JobHistory
from holdfast.torture.checker.partition import Buckets, gather
from holdfast.torture.checker.registry import INVARIANTS
from holdfast.torture.checker.run import Run
from holdfast.torture.checker.timeline import timeline
from holdfast.torture.checker.verdict import Tally, Verdict, Violation
from holdfast.torture.events import Event
from holdfast.torture.history import History

BUCKETS = 64


def check(
    history: History | Path | str,
    *,
    invariants: Sequence[type[Invariant]] = INVARIANTS,
    buckets: int = BUCKETS,
    settings: Mapping[str, int | bool] | None = None,
) -> Verdict:
    """Check the history in a directory. Memory is that of one bucket of jobs and a few numbers per job.

    `settings` replaces some of what the run's own `run_began` says. Needs about as much room on disk as the history
    itself, beside it. Raises `HistoryDamaged` if the history cannot be read.
    """
    if not isinstance(history, History):
        history = History(history)
    run = Run()
    with tempfile.TemporaryDirectory(prefix="checking-", dir=history.directory) as directory:
        with Buckets(Path(directory), buckets) as split:
            split.fill(history, run)
        run.settings = msgspec.structs.replace(run.settings, **(settings or {}))
        return _judge(run, split.jobs(), invariants, split.records)


def check_events(
    records: Iterable[tuple[str, Event]], *, invariants: Sequence[type[Invariant]] = INVARIANTS
) -> Verdict:
    """Check a history that is in memory: records, each with the name of the process that wrote it."""
    run = Run()
    kept = list(records)
    for process, event in kept:
        run.note(process, event)
    run.close()
    return _judge(run, iter(gather(kept).items()), invariants, len(kept))


def _judge(
    run: Run, jobs: Iterator[tuple[str, list[Entry]]], invariants: Sequence[type[Invariant]], records: int
) -> Verdict:
    checks = [invariant(run) for invariant in invariants]
    tallies = [Tally(check.code, check.name, check.forbids) for check in checks]
    pairs = list(zip(checks, tallies, strict=True))
    first: tuple[JobHistory, list[Violation]] | None = None
    count = 0
    for job_id, entries in jobs:
        count += 1
        job = JobHistory(job_id, entries)
        if job.call is None and job.row is not None and job.row.call:
            job.call = run.calls.get(job.row.call)
        found: list[Violation] = []
        for check, tally in pairs:
            for violation in check.job(job):
                tally.add(violation)
                found.append(violation)
        if found:
            found.sort(key=lambda violation: violation.at_us)
            if first is None or found[0].at_us < first[1][0].at_us:
                first = (job, found)
    for check, tally in pairs:
        tally.checked = count
        for violation in check.whole():
            tally.add(violation)
    return Verdict(
        tallies=tallies,
        jobs=count,
        records=records,
        timeline="" if first is None else timeline(first[0], first[1], begin_us=run.first_us),
        figures={name: value for check in checks for name, value in check.figures.items()},
    )
