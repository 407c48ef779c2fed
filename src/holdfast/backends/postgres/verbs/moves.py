"""What a batch of running jobs comes to, gathered first and then written by a statement per table."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from holdfast.backends.postgres.verbs.lines import heads_left
from holdfast.backends.postgres.verbs.text import clean, clean_or_none
from holdfast.backends.sql.steps import rows
from holdfast.model.budget import Counters
from holdfast.model.job import JobState
from holdfast.model.outcome import Failure
from holdfast.model.turn import turn_of
from holdfast.store.steps import Steps

KEEP_FIRST = 5
KEEP_LAST = 20


class Running(NamedTuple):
    """A locked row of `running`, with what is needed of its job and the instant at which it was locked."""

    seq: int
    lane_id: int
    fence: int
    worker_id: str
    started_at: int
    attempt: int
    excused: int
    interrupted: int
    lost: int
    isolated: bool
    keyed: bool
    cancel_asked: bool
    cancel_reason: str | None
    max_attempts: int
    turn: int
    priority: int
    payload_bytes: int
    now: int

    @property
    def counters(self) -> Counters:
        """What is counted of its attempts."""
        return Counters(self.attempt, self.excused, self.interrupted, self.lost)


class Moves:
    """Rows to write, by statement and column."""

    def __init__(self) -> None:
        self._left: list[int] = []
        self._columns: dict[str, dict[str, list[object]]] = {}
        self._thinned: list[Running] = []
        self._heads_left: list[int] = []
        self.ready: list[tuple[int, int, int]] = []

    def _add(self, statement: str, **columns: object) -> None:
        table = self._columns.setdefault(statement, defaultdict(list))
        for name, value in columns.items():
            table[name].append(value)

    def write(self) -> Steps[None]:
        """Write all of it."""
        if self._left:
            yield from rows("leave_running", seqs=self._left)
        for statement, columns in self._columns.items():
            yield from rows(statement, **columns)
        if self._thinned:
            yield from rows(
                "thin_attempts",
                seqs=[running.seq for running in self._thinned],
                attempts=[running.attempt for running in self._thinned],
                first=KEEP_FIRST,
                last=KEEP_LAST,
            )
        if self._heads_left:
            self.ready += yield from heads_left(self._heads_left)

    def head_left(self, seq: int) -> None:
        """A job that was the head of its line has ended: let the next come up when all else is written."""
        self._heads_left.append(seq)

    def record(self, running: Running, outcome: str, failure: Failure | None, *, by_holder: bool = True) -> None:
        """Leave a record of the attempt; of very many, keep the first few and the last few."""
        said = (failure.error_class, failure.message, failure.traceback, failure.signature) if failure else (None,) * 4
        error_class, message, traceback, signature = map(clean_or_none, said)
        self._add(
            "record_attempts",
            seq=running.seq,
            attempt=running.attempt,
            fence=running.fence,
            by_holder=by_holder,
            worker_id=running.worker_id,
            started_at=running.started_at,
            ended_at=running.now,
            outcome=outcome,
            error_class=error_class,
            message=message,
            traceback=traceback,
            signature=signature,
        )
        if running.attempt > KEEP_FIRST + KEEP_LAST:
            self._thinned.append(running)

    def count(
        self,
        at: int,
        lane_id: int,
        *,
        enqueued: int = 0,
        retried: int = 0,
        failed: int = 0,
        cancelled: int = 0,
        lost: int = 0,
    ) -> None:
        """Add to the counts of a minute."""
        self._add(
            "count_events",
            at=at,
            lane_id=lane_id,
            enqueued=enqueued,
            retried=retried,
            failed=failed,
            cancelled=cancelled,
            lost=lost,
        )

    def to_ready(self, running: Running, counters: Counters) -> JobState:
        """Make it ready again at its old turn, unless somebody asked to cancel it."""
        if running.cancel_asked:
            return self.to_cancelled(running, running.cancel_reason or "", lost=counters.lost)
        self._left.append(running.seq)
        self.put_ready(running.lane_id, running.turn, running.seq, running.payload_bytes, counters, keyed=running.keyed)
        return JobState.READY

    def put_ready(
        self, lane_id: int, turn: int, seq: int, payload_bytes: int, counters: Counters, *, keyed: bool = False
    ) -> None:
        """Let it lie in ready."""
        self.ready.append((lane_id, turn, seq))
        self._add(
            "put_ready",
            lane_id=lane_id,
            turn=turn,
            seq=seq,
            payload_bytes=payload_bytes,
            attempt=counters.attempt,
            excused=counters.excused,
            interrupted=counters.interrupted,
            lost=counters.lost,
            keyed=keyed,
        )

    def to_scheduled(self, running: Running, counters: Counters, run_at: int) -> JobState:
        """Make it due again at an instant, unless somebody asked to cancel it."""
        if running.cancel_asked:
            return self.to_cancelled(running, running.cancel_reason or "", lost=counters.lost)
        self._left.append(running.seq)
        self._add(
            "put_scheduled",
            run_at=run_at,
            seq=running.seq,
            attempt=counters.attempt,
            excused=counters.excused,
            interrupted=counters.interrupted,
            lost=counters.lost,
            keyed=running.keyed,
        )
        self.set_turn(running.seq, turn_of(run_at, running.priority))
        return JobState.SCHEDULED

    def to_failed(self, running: Running, reason: str, *, lost: int | None = None) -> JobState:
        """Keep it for a person."""
        self._end(running, "put_failed", reason, lost)
        self.count(running.now, running.lane_id, failed=1)
        return JobState.FAILED

    def to_cancelled(self, running: Running, reason: str, *, lost: int | None = None) -> JobState:
        """Give it up for good."""
        self._end(running, "put_cancelled", reason, lost)
        self.count(running.now, running.lane_id, cancelled=1)
        return JobState.CANCELLED

    def _end(self, running: Running, statement: str, reason: str, lost: int | None) -> None:
        self._left.append(running.seq)
        if running.keyed:
            self.head_left(running.seq)
        self.put_ended(
            statement,
            running.seq,
            attempt=running.attempt,
            lost=running.lost if lost is None else lost,
            at=running.now,
            reason=reason,
        )

    def put_ended(self, statement: str, seq: int, *, attempt: int, lost: int, at: int, reason: str) -> None:
        """Let it lie among the failed or cancelled."""
        self._add(statement, seq=seq, attempt=attempt, lost=lost, finished_at=at, reason=clean(reason))

    def set_turn(self, seq: int, turn: int) -> None:
        """Note a job's new turn with the job."""
        self._add("set_turns", seqs=seq, turns=turn)
