"""Write the ends of attempts, a verdict for each.

Completions, nearly all there is, go by one statement for the whole batch. The rest is locked first, decided by the
rules of the model, and written by a statement per table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.backends.postgres.verbs.lines import heads_left
from holdfast.backends.postgres.verbs.moves import Moves, Running
from holdfast.backends.postgres.verbs.rescue import lock, lose
from holdfast.backends.sql.steps import Numbers, became_ready, rows, run, value
from holdfast.model.budget import after_return
from holdfast.model.instants import span_micros
from holdfast.model.job import Lease
from holdfast.model.outcome import Cancelled, Completed, Failed, Failure, Lost, Retried, Snoozed
from holdfast.store.steps import Steps
from holdfast.store.values import Finish, Standing, Verdict

_WORDS = {
    Completed: "completed",
    Retried: "retried",
    Snoozed: "snoozed",
    Failed: "failed",
    Cancelled: "cancelled",
    Lost: "lost",
}
Key = tuple[int, int]


def only_completes(finishes: Sequence[Finish]) -> bool:
    """Tell whether one statement does for all of them."""
    return all(type(finish.outcome) is Completed for finish in finishes)


class Completions(NamedTuple):
    """Which leases, (seq, fence), were completed, and which jobs among those held are heads of lines."""

    done: set[Key]
    heads: list[int]


def complete_all(finishes: Sequence[Finish], *, keyed: bool) -> Steps[Completions]:
    """Complete what is held; without `keyed` nothing, if one of them is the head of a line."""
    wanted = {(finish.lease.seq, finish.lease.fence): finish.outcome for finish in finishes}
    ordered = sorted(wanted)
    results = [outcome.result if isinstance(outcome := wanted[key], Completed) else None for key in ordered]
    ((count, seqs, fences, heads),) = yield from rows(
        "complete",
        seqs=Numbers(seq for seq, _ in ordered),
        fences=Numbers(fence for _, fence in ordered),
        results=results if any(results) else None,
        number=len(ordered),
        keyed=keyed,
    )
    return Completions(set(ordered if count == len(ordered) else zip(seqs, fences, strict=True)), heads)


def complete(lease: Lease, result: str | None) -> Steps[Verdict]:
    """Complete one job under its fence, as the last statement of a transaction."""
    completed = yield from complete_all([Finish(lease, Completed(result))], keyed=True)
    if completed.heads:
        places = yield from heads_left(completed.heads)
        if places:
            yield from became_ready(places)
    return Verdict.DONE if completed.done else Verdict.LOST


def finish(finishes: Sequence[Finish]) -> Steps[tuple[list[Verdict], Moves]]:
    """Write each outcome whose lease is held; LOST for the others, but DONE for what was written before."""
    completions: list[Finish] = []
    others: dict[Key, Finish] = {}
    first: dict[Key, Finish] = {}
    for item in finishes:
        key = (item.lease.seq, item.lease.fence)
        if first.setdefault(key, item) is not item:
            continue
        if type(item.outcome) is Completed:
            completions.append(item)
        else:
            others[key] = item
    done: set[Key] = set()
    moves = Moves()
    if completions:
        completed = yield from complete_all(completions, keyed=True)
        done |= completed.done
        for seq in completed.heads:
            moves.head_left(seq)
    if others:
        for running in (yield from lock(others)):
            _end(moves, running, others[running.seq, running.fence].outcome)
            done.add((running.seq, running.fence))
    yield from moves.write()
    return (yield from verdicts(finishes, done)), moves


def _end(moves: Moves, running: Running, outcome: object) -> None:
    match outcome:
        case Retried(delay, failure):
            moves.record(running, "retried", failure)
            moves.to_scheduled(running, running.counters, running.now + span_micros(delay))
            moves.count(running.now, running.lane_id, retried=1)
        case Snoozed(delay):
            moves.record(running, "snoozed", None)
            moves.to_scheduled(running, after_return(running.counters), running.now + span_micros(delay))
        case Failed(failure):
            moves.record(running, "failed", failure)
            moves.to_failed(running, f"{failure.error_class}: {failure.message}")
        case Cancelled(reason):
            moves.record(running, "cancelled", Failure("Cancelled", reason))
            moves.to_cancelled(running, reason)
        case Lost(failure):
            lose(moves, running, failure, alone=True, by_holder=True)
        case _:
            raise AssertionError(outcome)


def verdicts(finishes: Sequence[Finish], done: set[Key]) -> Steps[list[Verdict]]:
    """Answer for each; what was not held may have been ended so before, in a call whose reply was lost."""
    answers = [Verdict.DONE if (item.lease.seq, item.lease.fence) in done else Verdict.LOST for item in finishes]
    open_ones = [index for index, answer in enumerate(answers) if answer is Verdict.LOST]
    if open_ones:
        repeated = yield from rows(
            "ended_before",
            seqs=[finishes[index].lease.seq for index in open_ones],
            fences=[finishes[index].lease.fence for index in open_ones],
            outcomes=[_WORDS[type(finishes[index].outcome)] for index in open_ones],
        )
        for (place,) in repeated:
            answers[open_ones[place - 1]] = Verdict.DONE
    return answers


def verify(lease: Lease) -> Steps[Standing]:
    """Tell how a lease stands, once whoever has its row locked has ended."""
    if (yield from run("wait_for_lease", seq=lease.seq, fence=lease.fence)):
        return Standing.HELD
    completed = yield from value("was_completed", seq=lease.seq, fence=lease.fence)
    return Standing.COMPLETED if completed else Standing.LOST
