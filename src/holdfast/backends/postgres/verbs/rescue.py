"""Take leases from workers that are dead or silent, and give jobs back.

Expiry is judged in the statement that locks the row: a lease that was extended a moment ago is not seen as expired, and
one that is taken here is stale for its holder from this commit on.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import timedelta

from holdfast.backends.postgres.verbs.moves import Moves, Running
from holdfast.backends.sql.steps import Numbers, rows, run, value
from holdfast.model.budget import after_interruption, after_loss, after_return, was_alone
from holdfast.model.instants import span_micros
from holdfast.model.job import JobState, Lease
from holdfast.model.outcome import Failure
from holdfast.store.steps import Steps
from holdfast.store.values import Rescued, Verdict

_LATE = 4  # a wait of more than this part of a lease breaks the access of whoever waited


def lock(leases: Iterable[tuple[int, int]]) -> Steps[list[Running]]:
    """Lock the rows of those leases, (seq, fence), that are held."""
    ordered = sorted(leases)
    found = yield from rows(
        "lock_leases", seqs=Numbers(seq for seq, _ in ordered), fences=Numbers(fence for _, fence in ordered)
    )
    return [Running(*row) for row in found]


def lose(moves: Moves, running: Running, failure: Failure, *, alone: bool, by_holder: bool) -> JobState:
    """Apply the lost-worker rule to one running job."""
    moves.record(running, "lost", failure, by_holder=by_holder)
    moves.count(running.now, running.lane_id, lost=1)
    verdict = after_loss(running.counters, max_attempts=running.max_attempts, alone=alone)
    if verdict.failed_because is not None and not running.cancel_asked:
        return moves.to_failed(running, verdict.failed_because, lost=verdict.counters.lost)
    return moves.to_ready(running, verdict.counters)


def _access(unbroken: timedelta | None) -> int | None:
    return None if unbroken is None else span_micros(unbroken)


def any_expired(unbroken: timedelta | None) -> Steps[bool]:
    """Tell whether there is anything to take; reads only."""
    return bool((yield from value("any_expired", unbroken=_access(unbroken))))


def rescue(unbroken: timedelta | None, limit: int, *, asked_at: float) -> Steps[tuple[list[Rescued], Moves]]:
    """Take expired leases; what was asked for by a monotonic clock at `asked_at` and came late is left to its holder.

    A statement that waited for a lock, or for the network, finds leases expired that nobody could extend meanwhile.
    """
    found = yield from rows("lock_expired", unbroken=_access(unbroken), limit=limit)
    waited = span_micros(timedelta(seconds=time.monotonic() - asked_at))
    taken = [(Running(*row), held) for *row, held, span in found if unbroken is None or _LATE * waited <= span]
    return (yield from _take(taken, "its lease expired"))


def rescue_worker(worker_id: str, reason: str, limit: int) -> Steps[tuple[list[Rescued], Moves]]:
    """Take all leases of a dead worker; forget it once none is left."""
    found = yield from rows("lock_of_worker", worker_id=worker_id, limit=limit)
    rescued = yield from _take([(Running(*row), held) for *row, held in found], reason)
    if len(found) < limit:
        yield from run("forget_worker", worker_id=worker_id)
    return rescued


def _take(taken: Sequence[tuple[Running, int]], reason: str) -> Steps[tuple[list[Rescued], Moves]]:
    """Take running jobs, each with the number of jobs that its worker held."""
    moves = Moves()
    taken = yield from _within_reach(taken)
    if not taken:
        return [], moves
    described = yield from rows("describe_jobs", seqs=[running.seq for running, _ in taken])
    names = {seq: names for seq, *names in described}
    rescued: list[Rescued] = []
    for running, held in taken:
        failure = Failure("WorkerLost", f"worker {running.worker_id} was lost: {reason}")
        alone = was_alone(isolated=running.isolated, held=held)
        state = lose(moves, running, failure, alone=alone, by_holder=False)
        job_id, queue, task = names[running.seq]
        rescued.append(Rescued(job_id, task, queue, running.worker_id, running.attempt, state))
    yield from moves.write()
    yield from run("isolate_no_more", worker_ids=sorted({running.worker_id for running, _ in taken}))
    return rescued, moves


def _within_reach(taken: Sequence[tuple[Running, int]]) -> Steps[Sequence[tuple[Running, int]]]:
    """Leave out jobs whose end needs an order key that another session has locked: others do not wait for it."""
    ending = {running.seq for running, held in taken if running.keyed and _ends(running, held)}
    if not ending:
        return taken
    locked = {seq for (seq,) in (yield from rows("locked_lines", seqs=Numbers(sorted(ending))))}
    return [(running, held) for running, held in taken if running.seq not in locked]


def _ends(running: Running, held: int) -> bool:
    alone = was_alone(isolated=running.isolated, held=held)
    verdict = after_loss(running.counters, max_attempts=running.max_attempts, alone=alone)
    return running.cancel_asked or verdict.failed_because is not None


def release(leases: Sequence[Lease], *, started: bool) -> Steps[tuple[list[Verdict], Moves]]:
    """Give jobs back to ready."""
    moves = Moves()
    held = yield from lock({(lease.seq, lease.fence) for lease in leases})
    for running in held:
        if started:
            _interrupt(moves, running)
        else:
            moves.record(running, "released", None)
            moves.to_ready(running, after_return(running.counters))
    yield from moves.write()
    keys = {(running.seq, running.fence) for running in held}
    answers: list[Verdict] = []
    for lease in leases:
        answers.append(Verdict.DONE if (lease.seq, lease.fence) in keys else Verdict.LOST)
        keys.discard((lease.seq, lease.fence))
    return answers, moves


def _interrupt(moves: Moves, running: Running) -> None:
    moves.record(running, "released", Failure("Interrupted", "the worker was stopped while the job ran"))
    verdict = after_interruption(running.counters, max_attempts=running.max_attempts)
    if verdict.failed_because is not None and not running.cancel_asked:
        moves.to_failed(running, verdict.failed_because)
    else:
        moves.to_ready(running, verdict.counters)
