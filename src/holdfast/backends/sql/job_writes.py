"""Writes changes of jobs: one statement per table that rows leave, and one per table that they enter."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence

from holdfast.backends.sql.job_columns import LEAVE, PUT, columns_of
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
    for old, new, *_ in changes:
        if new.state is JobState.RUNNING:
            put["ask_to_cancel"].append({"seq": new.seq, "reason": text(new.cancel_reason or "")})
            continue
        left[f"leave_{old.state}"].append(columns_of(old, LEAVE[old.state]))
        if new.state in ENDED:
            put[f"put_{new.state}"].append({**columns_of(new, PUT[new.state]), "reason": text(new.reason or "")})
        elif new.state is not JobState.BLOCKED:
            put[f"put_{new.state}"].append(columns_of(new, PUT[new.state]))
        if new.turn != old.turn:
            put["set_turns"].append({"seq": new.seq, "turn": new.turn})
    for statement, rows in (*left.items(), *put.items()):
        yield from each(statement, rows)
    yield from _record_attempts(changes, text)
    yield from _count_events(now, changes)
    for change in changes:
        if change.new.state is JobState.BLOCKED:
            yield from put_blocked(change.new)
    return [(new.lane_id, new.turn, new.seq) for _, new, *_ in changes if new.state is JobState.READY]


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
