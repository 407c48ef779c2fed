"""What a person asks of a job or a queue: cancel, retry, reset, pause, resume."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.backends.sqlite.connection import Tx
from holdfast.backends.sqlite.verbs import lines
from holdfast.backends.sqlite.verbs import running as rows
from holdfast.backends.sqlite.verbs.counting import count
from holdfast.errors import JobNotFound
from holdfast.model.budget import Counters, after_retry, after_return
from holdfast.model.job import JobState
from holdfast.model.outcome import Failure
from holdfast.model.turn import run_at_of, turn_of
from holdfast.store.values import Cancellation


class Place(NamedTuple):
    """Where a job lies."""

    seq: int
    lane_id: int
    turn: int
    priority: int
    state: str
    order_key: str | None


def find(tx: Tx, job_id: str) -> Place:
    """Return where a job lies; raise `JobNotFound`."""
    row = tx.row("job_place", {"id": job_id})
    if row is None:
        message = f"no job has the id {job_id}: it never existed, or it was pruned after its retention"
        raise JobNotFound(message)
    return Place(*row)


def cancel(tx: Tx, job_id: str, reason: str) -> Cancellation:
    """Cancel what has not begun; ask for what runs; too late for what has ended."""
    place = find(tx, job_id)
    if place.state == JobState.RUNNING:
        tx.run("ask_to_cancel", {"seq": place.seq, "reason": reason})
        return Cancellation.ASKED
    counters = _take_waiting(tx, place)
    if counters is None:
        return Cancellation.TOO_LATE
    tx.run(
        "cancel",
        {"seq": place.seq, "attempt": counters.attempt, "lost": counters.lost, "now": tx.now, "reason": reason},
    )
    count(tx, place.lane_id, cancelled=1)
    if place.order_key is not None and place.state != JobState.BLOCKED:
        lines.head_left(tx, place.seq)
    return Cancellation.CANCELLED


def _take_waiting(tx: Tx, place: Place) -> Counters | None:
    row = None
    if place.state == JobState.READY:
        row = tx.row("take_ready", {"lane_id": place.lane_id, "turn": place.turn, "seq": place.seq})
    elif place.state == JobState.SCHEDULED:
        row = tx.row("take_scheduled", {"run_at": run_at_of(place.turn, place.priority), "seq": place.seq})
    elif place.state == JobState.BLOCKED:
        row = tx.row("take_blocked", {"seq": place.seq})
    return None if row is None else Counters(*row)


def retry(tx: Tx, job_id: str) -> bool:
    """Make a failed or cancelled job ready, now and with a fresh budget; with a key, at the end of its line."""
    place = find(tx, job_id)
    if place.state not in {JobState.FAILED, JobState.CANCELLED}:
        return False
    attempt, lost = tx.row(f"take_{place.state}", {"seq": place.seq})
    counters = after_retry(Counters(attempt=attempt, lost=lost))
    turn = turn_of(tx.now, place.priority)
    tx.run("set_turn", {"seq": place.seq, "turn": turn})
    if place.order_key is not None:
        _, queue, _ = tx.row("describe_job", {"seq": place.seq})
        lines.end_of_line(tx, (queue, place.order_key), place.seq, counters)
        return True
    tx.run(
        "back_to_ready",
        {
            "lane_id": place.lane_id,
            "turn": turn,
            "seq": place.seq,
            "attempt": counters.attempt,
            "excused": counters.excused,
            "interrupted": counters.interrupted,
            "lost": counters.lost,
            "keyed": 0,
        },
    )
    return True


def reset(tx: Tx, job_id: str) -> bool:
    """Take a running job's lease away; its holder is stale from now on."""
    place = find(tx, job_id)
    running = rows.find(tx, place.seq, None)
    if running is None:
        return False
    rows.record(tx, running, "released", Failure("Reset", "a person took the lease away"), by_holder=False)
    rows.to_ready(tx, running, after_return(running.counters))
    return True


def pause(tx: Tx, queue: str) -> bool:
    """Let nobody claim from a queue."""
    return tx.run("pause", {"queue": queue}) > 0


def resume(tx: Tx, queue: str) -> bool:
    """Allow claims again."""
    return tx.run("resume", {"queue": queue}) > 0
