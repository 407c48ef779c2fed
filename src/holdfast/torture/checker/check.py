"""Check a history: one pass over the files, then job by job, then the run as a whole."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from holdfast.torture.checker.invariant import Invariant
from holdfast.torture.checker.job import Entry, JobHistory
from holdfast.torture.checker.partition import Buckets, gather
from holdfast.torture.checker.registry import INVARIANTS
from holdfast.torture.checker.run import RunFacts
from holdfast.torture.checker.timeline import entries_of, timeline
from holdfast.torture.checker.verdict import InvariantResult, RunVerdict, Violation
from holdfast.torture.events import HistoryRecord, RunBegan
from holdfast.torture.history import History

BUCKETS = 64


def check(
    history: History | Path | str,
    *,
    invariants: Sequence[type[Invariant]] = INVARIANTS,
    buckets: int = BUCKETS,
    settings: Mapping[str, int | bool] | None = None,
) -> RunVerdict:
    """Check the history in a directory. Memory use is one bucket of jobs plus a few numbers per job.

    `settings` overrides settings of the `run_began` record. The check needs temporary disk space next to the history,
    about the size of the history. Raises `HistoryDamaged` if the history cannot be read.
    """
    if not isinstance(history, History):
        history = History(history)
    run = RunFacts()
    with tempfile.TemporaryDirectory(prefix="checking-", dir=history.directory) as directory:
        with Buckets(Path(directory), buckets) as split:
            split.fill(history, run)
        run.settings = msgspec.structs.replace(run.settings, **(settings or {}))
        return _judge(run, split.jobs(), invariants, split.records, again=lambda job: entries_of(job, history.all()))


def check_events(
    records: Iterable[tuple[str, HistoryRecord]], *, invariants: Sequence[type[Invariant]] = INVARIANTS
) -> RunVerdict:
    """Check a history in memory: records, each with the name of the process that wrote it."""
    run = RunFacts()
    kept = sorted(records, key=lambda record: record[1].at_us)
    for process, event in kept:
        run.note(process, event)
    run.close()
    jobs = iter(gather(kept).items())
    return _judge(run, jobs, invariants, len(kept), again=lambda job: entries_of(job, kept))


def _judge(
    run: RunFacts,
    jobs: Iterator[tuple[str, list[Entry]]],
    invariants: Sequence[type[Invariant]],
    records: int,
    *,
    again: Callable[[str], list[Entry]],
) -> RunVerdict:
    """Check job by job, then the run; `again` re-reads the records of a job that only the run-wide check implicates."""
    checks = [invariant(run) for invariant in invariants]
    tallies = [InvariantResult(check.code, check.name, check.forbids) for check in checks]
    pairs = list(zip(checks, tallies, strict=True))
    first: tuple[JobHistory, list[Violation]] | None = None
    of_run: list[Violation] = []
    count = 0
    for job_id, entries in jobs:
        count += 1
        job = _history_of(job_id, entries, run)
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
        for violation in check.whole_run():
            tally.add(violation)
            if violation.job:
                of_run.append(violation)
        tally.checked, tally.unjudged = check.judged, check.unjudged
    found_first = [found for found in (first, _implicated_by_run(of_run, again, run)) if found is not None]
    first = min(found_first, key=lambda found: found[1][0].at_us, default=None)
    return RunVerdict(
        tallies=tallies,
        jobs=count,
        records=records,
        timeline="" if first is None else timeline(first[0], first[1], begin_us=run.first_us),
        figures={name: value for check in checks for name, value in check.figures.items()},
    )


def _implicated_by_run(
    of_run: list[Violation], again: Callable[[str], list[Entry]], run: RunFacts
) -> tuple[JobHistory, list[Violation]] | None:
    """Return the job of the earliest violation that only the check of the whole run found, if any."""
    if not of_run:
        return None
    job = min(of_run, key=lambda violation: violation.at_us).job
    of_it = [violation for violation in of_run if violation.job == job]
    return _history_of(job, again(job), run), sorted(of_it, key=lambda violation: violation.at_us)


def _history_of(job_id: str, entries: list[Entry], run: RunFacts) -> JobHistory:
    """Return the history of a job, including the call that enqueued it without naming it."""
    job = JobHistory(job_id, entries)
    if job.call is None and job.row is not None and job.row.call:
        job.call = run.calls.get(job.row.call)
    return job


def timeline_of(history: History | Path | str, job: str, what: str) -> str:
    """Return the timeline of one job with a violation that was found outside the checker."""
    if not isinstance(history, History):
        history = History(history)
    begin_us = min((event.at_us for _, event in history.of(RunBegan)), default=0)
    entries = entries_of(job, history.all())
    at_us = max((entry.event.at_us for entry in entries), default=begin_us)
    return timeline(JobHistory(job, entries), [Violation("steps", what, at_us, job)], begin_us=begin_us)
