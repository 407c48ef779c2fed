"""Writes changes of jobs: one statement per table that rows leave, and one per table that they enter."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from holdfast.backends.sql.job_columns import LEAVE, PUT, WAITING, columns_of
from holdfast.backends.sql.order_keys import put_blocked
from holdfast.backends.sql.steps import each
from holdfast.model.job import JobState
from holdfast.store.job_rows import ENDED, Change
from holdfast.store.steps import Place, Steps

MINUTE = 60_000_000
COUNTS = ("enqueued", "retried", "failed", "cancelled", "lost")

Row = Mapping[str, object]
Text = Callable[[str], str]

_ATTEMPT = ("attempt", "fence", "by_holder", "worker_id", "started_at", "ended_at", "outcome")
_FAILURE = ("error_class", "message", "traceback", "signature")


def write_changes(now: int, changes: Sequence[Change], text: Text) -> Steps[list[Place]]:
    """Write changes of locked rows; return the places of the jobs that are now ready."""
    left: defaultdict[str, list[Row]] = defaultdict(list)
    put: defaultdict[str, list[Row]] = defaultdict(list)
    for change in changes:
        old, new, *_ = change
        if change.only_follows:
            put[f"follow_{old.state}"].append(columns_of(old, LEAVE[old.state]))
            continue
        if new.state is JobState.RUNNING:
            put["ask_to_cancel"].append({"seq": new.seq, "reason": text(new.cancel_reason or "")})
            continue
        left[f"leave_{old.state}"].append(columns_of(old, LEAVE[old.state]))
        for statement, row in _entered(change, text):
            put[statement].append(row)
    for statement, rows in (*left.items(), *put.items()):
        yield from each(statement, rows)
    yield from _record_attempts(changes, text)
    yield from _count_events(now, changes)
    blocked = [change for change in changes if change.new.state is JobState.BLOCKED]
    joining = [change.new for change in blocked if not change.waits and not change.only_follows]
    for new in sorted(joining, key=lambda new: (new.queue, new.order_key or "")):  # the order in which keys are locked
        yield from put_blocked(new)
    ready = [
        change.new
        for change in changes
        if change.new.state is JobState.READY and not change.only_follows and not change.joins_limit_key
    ]
    return [(new.lane_id, new.turn, new.seq) for new in ready]


def _entered(change: Change, text: Text) -> Iterator[tuple[str, Row]]:
    """Yield the statements by which a job that has left the table of its old state enters that of its new one."""
    old, new, *_ = change
    if new.state in ENDED:
        yield f"put_{new.state}", {**columns_of(new, PUT[new.state]), "reason": text(new.reason or "")}
    elif change.waits:
        yield "put_waiting", columns_of(new, WAITING)
    elif new.state is not JobState.BLOCKED and not change.joins_limit_key:
        yield f"put_{new.state}", columns_of(new, PUT[new.state])
    if new.turn != old.turn:
        yield "set_turns", {"seq": new.seq, "turn": new.turn}
    if change.broken_by is not None:
        yield "mark_broken", {"child_seq": new.seq, "parent_seq": change.broken_by}
    if change.is_mended:
        yield "clear_broken", {"child_seq": new.seq}


def _record_attempts(changes: Sequence[Change], text: Text) -> Steps[None]:
    ended: list[Row] = []
    thinned: list[Row] = []
    for change in changes:
        record = change.attempt
        if record is None:
            continue
        words = {name: None if record.failure is None else text(getattr(record.failure, name)) for name in _FAILURE}
        ended.append({"seq": change.old.seq, **columns_of(record, _ATTEMPT), **words})
        if record.thin is not None:
            after, up_to = record.thin
            thinned.append({"seq": change.old.seq, "after": after, "up_to": up_to})
    yield from each("record_attempts", ended)
    yield from each("thin_attempts", thinned)


def minute_of(now: int) -> int:
    """Return the instant at which the minute of `now` began."""
    return now - now % MINUTE


def count_row(now: int, lane_id: int, numbers: Mapping[str, int]) -> Row:
    """Return the parameters of `count_events` that add these numbers to the counters of a lane."""
    return {"minute_at": minute_of(now), "lane_id": lane_id, **{name: numbers.get(name, 0) for name in COUNTS}}


def _count_events(now: int, changes: Sequence[Change]) -> Steps[None]:
    counted: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for change in changes:
        if change.counts:
            counted[change.old.lane_id].update(change.counts)
    rows = [count_row(now, lane_id, numbers) for lane_id, numbers in sorted(counted.items())]
    yield from each("count_events", rows)
