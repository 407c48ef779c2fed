"""A running job's row, and the ways in which it can leave `running` without completing."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.backends.sqlite.connection import Tx
from holdfast.backends.sqlite.verbs import lines
from holdfast.backends.sqlite.verbs.counting import count
from holdfast.model.budget import Counters
from holdfast.model.job import JobState, Lease
from holdfast.model.outcome import Failure
from holdfast.model.turn import turn_of

KEEP_FIRST = 5
KEEP_LAST = 20


class Running(NamedTuple):
    """A row of `running`, with what is needed of its job."""

    seq: int
    lane_id: int
    fence: int
    worker_id: str
    lease_until: int
    lease_span: int
    started_at: int
    attempt: int
    excused: int
    interrupted: int
    lost: int
    isolated: int
    cancel_asked: int
    cancel_reason: str | None
    max_attempts: int
    turn: int
    priority: int
    keyed: int

    @property
    def counters(self) -> Counters:
        """What is counted of its attempts."""
        return Counters(self.attempt, self.excused, self.interrupted, self.lost)


def find(tx: Tx, seq: int, fence: int | None) -> Running | None:
    """Return the row if it is held under this fence (None: under any)."""
    row = tx.row("running_row", {"seq": seq, "fence": fence})
    return None if row is None else Running(*row)


def record(tx: Tx, running: Running, outcome: str, failure: Failure | None, *, by_holder: bool = True) -> None:
    """Leave a record of the attempt; of very many, keep the first few and the last few."""
    tx.run(
        "record_attempt",
        {
            "seq": running.seq,
            "attempt": running.attempt,
            "fence": running.fence,
            "by_holder": int(by_holder),
            "worker_id": running.worker_id,
            "started_at": running.started_at,
            "now": tx.now,
            "outcome": outcome,
            "error_class": failure and failure.error_class,
            "message": failure and failure.message,
            "traceback": failure and failure.traceback,
            "signature": failure and failure.signature,
        },
    )
    if running.attempt > KEEP_FIRST + KEEP_LAST:
        tx.run(
            "thin_attempts",
            {"seq": running.seq, "attempt": running.attempt, "first": KEEP_FIRST, "last": KEEP_LAST},
        )


def was_ended(tx: Tx, lease: Lease, outcome: str) -> bool:
    """Tell whether the holder has ended this very attempt so before, in a call whose reply was lost."""
    return tx.row("already_finished", {"seq": lease.seq, "fence": lease.fence, "outcome": outcome}) is not None


def to_ready(tx: Tx, running: Running, counters: Counters) -> JobState:
    """Make it ready again at its old turn, unless somebody asked to cancel it."""
    if running.cancel_asked:
        return to_cancelled(tx, running, running.cancel_reason or "", lost=counters.lost)
    tx.run("drop_running", {"seq": running.seq})
    tx.run(
        "back_to_ready",
        {
            "lane_id": running.lane_id,
            "turn": running.turn,
            "seq": running.seq,
            "attempt": counters.attempt,
            "excused": counters.excused,
            "interrupted": counters.interrupted,
            "lost": counters.lost,
            "keyed": running.keyed,
        },
    )
    return JobState.READY


def to_scheduled(tx: Tx, running: Running, counters: Counters, run_at: int) -> JobState:
    """Make it due again at an instant, unless somebody asked to cancel it."""
    if running.cancel_asked:
        return to_cancelled(tx, running, running.cancel_reason or "", lost=counters.lost)
    tx.run("drop_running", {"seq": running.seq})
    tx.run("set_turn", {"seq": running.seq, "turn": turn_of(run_at, running.priority)})
    tx.run(
        "schedule_again",
        {
            "run_at": run_at,
            "seq": running.seq,
            "retrying": 1,
            "attempt": counters.attempt,
            "excused": counters.excused,
            "interrupted": counters.interrupted,
            "lost": counters.lost,
            "keyed": running.keyed,
        },
    )
    return JobState.SCHEDULED


def to_failed(tx: Tx, running: Running, reason: str, *, lost: int | None = None) -> JobState:
    """Keep it for a person."""
    tx.run("drop_running", {"seq": running.seq})
    tx.run(
        "fail",
        {
            "seq": running.seq,
            "attempt": running.attempt,
            "lost": running.lost if lost is None else lost,
            "now": tx.now,
            "reason": reason,
        },
    )
    count(tx, running.lane_id, failed=1)
    _leave_line(tx, running)
    return JobState.FAILED


def to_cancelled(tx: Tx, running: Running, reason: str, *, lost: int | None = None) -> JobState:
    """Give it up for good."""
    tx.run("drop_running", {"seq": running.seq})
    tx.run(
        "cancel",
        {
            "seq": running.seq,
            "attempt": running.attempt,
            "lost": running.lost if lost is None else lost,
            "now": tx.now,
            "reason": reason,
        },
    )
    count(tx, running.lane_id, cancelled=1)
    _leave_line(tx, running)
    return JobState.CANCELLED


def _leave_line(tx: Tx, running: Running) -> None:
    if running.keyed:
        lines.head_left(tx, running.seq)
