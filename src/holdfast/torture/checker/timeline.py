"""The timeline of one job as text."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.torture.checker.job import Entry, JobHistory
from holdfast.torture.checker.partition import by_job
from holdfast.torture.checker.verdict import Violation
from holdfast.torture.events import DumpedJob, EnqueueCalled, HistoryRecord

_LEFT_OUT = frozenset({"at_us", "job", "jobs", "attempts"})
_INSTANTS = frozenset({"sent_us"})


def timeline(job: JobHistory, violations: list[Violation], *, begin_us: int) -> str:
    """Return all records of a job in order of time; seconds count from the start of the run."""
    lines = [f"the history of job {job.id}, in seconds since the run began:"]
    width = max((len(entry.process) for entry in job.entries), default=0)
    if job.call is not None and not job.has(EnqueueCalled):  # the library generated the id
        at = (job.call.at_us - begin_us) / 1e6
        lines.append(f"  {at:>11.6f}  {'a producer':<{width}}  {describe(job.call, begin_us)}")
    for entry in job.entries:
        event = entry.event
        at = (event.at_us - begin_us) / 1e6
        lines.append(f"  {at:>11.6f}  {entry.process:<{width}}  {describe(event, begin_us)}")
        if isinstance(event, DumpedJob):
            lines += [f"  {'':>11}  {'':<{width}}    {_fields(row, begin_us)}" for row in event.attempts]
    lines += [f"  {(violation.at_us - begin_us) / 1e6:>11.6f}  >> {violation}" for violation in violations]
    return "\n".join(lines)


def entries_of(job: str, records: Iterable[tuple[str, HistoryRecord]]) -> list[Entry]:
    """Return the records of one job: for the few timelines needed after all jobs were read."""
    return [Entry(process, part) for process, event in records for about, part in by_job(event) if about == job]


def describe(event: HistoryRecord, begin_us: int) -> str:
    """Return a record as text."""
    return f"{event.__struct_config__.tag!s:<18} {_fields(event, begin_us)}"


def _fields(record: msgspec.Struct, begin_us: int) -> str:
    parts: list[str] = []
    for field in msgspec.structs.fields(record):
        value = getattr(record, field.name)
        if field.name in _LEFT_OUT or (not field.required and value == field.default):
            continue
        if field.name in _INSTANTS:
            value = f"{(value - begin_us) / 1e6:.6f}"
        parts.append(f"{field.name}={value}")
    return " ".join(parts)
