"""Writes the outcomes of attempts, with a verdict for each.

Completions, nearly all outcomes in practice, take a path of the store. For the others, rows are locked, decided on by
the rules of the model, and written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from holdfast.model.budget import after_return
from holdfast.model.instants import span_micros
from holdfast.model.job import JobState, Lease
from holdfast.model.outcome import OUTCOME_WORDS, Cancelled, Completed, Failed, Failure, Lost, Outcome, Retried, Snoozed
from holdfast.store.job_rows import ByLeases, Change, JobRow, JobRows, Key
from holdfast.store.steps import Steps
from holdfast.store.values import Finish, Standing, Verdict
from holdfast.store.verbs.job_changes import recorded, to_cancelled, to_failed, to_scheduled, under_leases
from holdfast.store.verbs.rescue import lose


def only_completes(finishes: Sequence[Finish]) -> bool:
    """Whether all attempts completed their jobs."""
    return {type(finish.outcome) for finish in finishes} <= {Completed}


def finish(rows: JobRows, finishes: Sequence[Finish]) -> Steps[list[Verdict]]:
    """Write each outcome whose lease is held; return LOST for the others, but DONE for a repeat."""
    completions = [item for item in finishes if type(item.outcome) is Completed]
    refused: set[Key] = set()
    heads: Sequence[int] = ()
    if completions:
        refused, heads = yield from rows.complete(completions)
    if len(completions) == len(finishes):
        if heads:
            yield from rows.write(0, [], heads)
        return [Verdict.DONE] * len(finishes) if not refused else (yield from verdicts(rows, finishes, refused))
    others: dict[Key, Finish] = {}
    for item in finishes:
        if type(item.outcome) is not Completed:
            others.setdefault((item.lease.seq, item.lease.fence), item)

    def decide(row: JobRow, now: int) -> Change:
        return _ended(row, now, others[row.seq, row.fence].outcome)

    done = yield from under_leases(rows, [item.lease for item in others.values()], decide, heads)
    refused |= {(item.lease.seq, item.lease.fence) for item in finishes if _is_open(item, others, done)}
    return (yield from verdicts(rows, finishes, refused)) if refused else [Verdict.DONE] * len(finishes)


def finish_reachable(rows: JobRows, finishes: Sequence[Finish]) -> Steps[list[Verdict]]:
    """Write the outcomes that need no lock which another client holds; return DELAYED for the others."""
    locked = yield from rows.locked_leases([item.lease for item in finishes])
    found = yield from rows.lock(ByLeases([item.lease for item in finishes if item.lease.seq not in locked]))
    ends = [Change(row, row._replace(state=JobState.COMPLETED)) for row in found.rows]
    reachable = {change.old.seq for change in (yield from rows.reachable(ends))}
    locked |= {row.seq for row in found.rows} - reachable
    near = [item for item in finishes if item.lease.seq not in locked]
    written = iter((yield from finish(rows, near)) if near else [])
    return [Verdict.DELAYED if item.lease.seq in locked else next(written) for item in finishes]


def _is_open(item: Finish, others: dict[Key, Finish], done: set[Key]) -> bool:
    """Whether this call has not written the outcome: of two outcomes for one lease, only the first is written."""
    key = (item.lease.seq, item.lease.fence)
    return type(item.outcome) is not Completed and (key not in done or others[key] is not item)


def _ended(row: JobRow, now: int, outcome: Outcome) -> Change:
    match outcome:
        case Retried(delay, failure):
            record = recorded(row, now, "retried", failure)
            return to_scheduled(row, now, row.counters, now + span_micros(delay), record, ("retried",))
        case Snoozed(delay):
            record = recorded(row, now, "snoozed", None)
            return to_scheduled(row, now, after_return(row.counters), now + span_micros(delay), record)
        case Failed(failure):
            record = recorded(row, now, "failed", failure)
            return to_failed(row, now, f"{failure.error_class}: {failure.message}", record)
        case Cancelled(reason):
            record = recorded(row, now, "cancelled", Failure("Cancelled", reason))
            return to_cancelled(row, now, reason, record)
        case Lost(failure):
            return lose(row, now, failure, alone=True, by_holder=True)
        case Completed():
            raise AssertionError(outcome)
        case _:
            assert_never(outcome)


def verdicts(rows: JobRows, finishes: Sequence[Finish], refused: set[Key]) -> Steps[list[Verdict]]:
    """Return the verdicts; a lease in `refused` may have ended with this outcome in a call whose reply was lost."""
    leases = [item.lease for item in finishes if (item.lease.seq, item.lease.fence) in refused]
    ended = yield from rows.ended(leases)
    return [
        Verdict.LOST
        if (key := (item.lease.seq, item.lease.fence)) in refused
        and ended.get(key) != OUTCOME_WORDS[type(item.outcome)]
        else Verdict.DONE
        for item in finishes
    ]


def complete(rows: JobRows, lease: Lease, result: str | None) -> Steps[Verdict]:
    """Complete one job under its fence, as the last step of a transaction."""
    refused, heads = yield from rows.complete([Finish(lease, Completed(result))])
    if heads:
        yield from rows.write(0, [], heads)
    return Verdict.LOST if refused else Verdict.DONE


def verify(rows: JobRows, lease: Lease) -> Steps[Standing]:
    """Return the state of a lease, after the end of any transaction that has locked its row."""
    if (yield from rows.lock(ByLeases([lease]))).rows:
        return Standing.HELD
    ended = yield from rows.ended([lease])
    return Standing.COMPLETED if ended.get((lease.seq, lease.fence)) == "completed" else Standing.LOST
