"""What a person asks of a job or a queue: cancel, retry, reset, pause, resume.

Nothing holds a job still while it is looked at: a claim or a finish may move it between two statements. Each of these
tries every table in which the job can lie, and begins anew when it slipped by.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.backends.postgres.verbs.lines import end_of_line
from holdfast.backends.postgres.verbs.moves import Moves, Running
from holdfast.backends.postgres.verbs.text import clean
from holdfast.backends.sql.steps import row, rows, run, value
from holdfast.errors import JobNotFound, StoreUnavailable
from holdfast.model.budget import Counters, after_retry, after_return
from holdfast.model.outcome import Failure
from holdfast.model.turn import run_at_of, turn_of
from holdfast.store.steps import Steps
from holdfast.store.values import Cancellation

_TRIES = 50


class Place(NamedTuple):
    """What is needed to find a job's row."""

    seq: int
    lane_id: int
    turn: int
    priority: int
    payload_bytes: int
    now: int
    order_key: str | None


def find(job_id: str) -> Steps[Place]:
    """Return where to look for a job; raise `JobNotFound`."""
    found = yield from row("job_place", id=job_id)
    if found is None:
        message = f"no job has the id {job_id}: it never existed, or it was pruned after its retention"
        raise JobNotFound(message)
    return Place(*found)


def _slipped(job_id: str) -> StoreUnavailable:
    return StoreUnavailable(f"job {job_id} moves faster than it can be caught: try again")


def cancel(job_id: str, reason: str) -> Steps[tuple[Cancellation, Moves]]:
    """Cancel what has not begun; ask for what runs; too late for what has ended."""
    moves = Moves()
    for _ in range(_TRIES):
        place = yield from find(job_id)
        seq = place.seq
        taken = yield from row("take_ready", lane_id=place.lane_id, turn=place.turn, seq=seq)
        if taken is None:
            taken = yield from row("take_scheduled", run_at=run_at_of(place.turn, place.priority), seq=seq)
        if place.order_key is not None:
            if taken is not None:
                moves.head_left(seq)
            else:
                taken = yield from row("take_blocked", seq=seq)
        if taken is not None:
            moves.put_ended("put_cancelled", seq, attempt=taken[0], lost=taken[1], at=place.now, reason=reason)
            moves.count(place.now, place.lane_id, cancelled=1)
            yield from moves.write()
            return Cancellation.CANCELLED, moves
        if (yield from run("ask_to_cancel", seq=seq, reason=clean(reason))):
            return Cancellation.ASKED, moves
        if (yield from value("has_ended", seq=seq)):
            return Cancellation.TOO_LATE, moves
    raise _slipped(job_id)


def retry(job_id: str) -> Steps[tuple[bool, Moves]]:
    """Make a failed or cancelled job ready, now and with a fresh budget; with a key, at the end of its line."""
    place = yield from find(job_id)
    moves = Moves()
    taken = yield from row("take_failed", seq=place.seq)
    if taken is None:
        taken = yield from row("take_cancelled", seq=place.seq)
    if taken is None:
        yield from find(job_id)  # it may have been pruned meanwhile: then say that it is not there
        return False, moves
    attempt, lost = taken
    turn = turn_of(place.now, place.priority)
    moves.set_turn(place.seq, turn)
    counters = after_retry(Counters(attempt=attempt, lost=lost))
    if place.order_key is None:
        moves.put_ready(place.lane_id, turn, place.seq, place.payload_bytes, counters)
    yield from moves.write()
    if place.order_key is not None:
        ((_, _, queue, _),) = yield from rows("describe_jobs", seqs=[place.seq])
        moves.ready += yield from end_of_line((queue, place.order_key), place.seq, counters)
    return True, moves


def reset(job_id: str) -> Steps[tuple[bool, Moves]]:
    """Take a running job's lease away; its holder is stale from now on."""
    place = yield from find(job_id)
    moves = Moves()
    found = yield from row("lock_running", seq=place.seq)
    if found is None:
        return False, moves
    running = Running(*found)
    moves.record(running, "released", Failure("Reset", "a person took the lease away"), by_holder=False)
    moves.to_ready(running, after_return(running.counters))
    yield from moves.write()
    return True, moves
