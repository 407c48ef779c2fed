"""Write the ends of attempts, a verdict for each.

Plain completions, nearly all there is, go through three statements for all jobs of one claim, each with its fence; only
if fewer rows were written than asked for is it looked up which. The rest is rare and goes row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import msgspec

from holdfast.backends.sqlite.connection import Tx
from holdfast.backends.sqlite.verbs import lines
from holdfast.backends.sqlite.verbs import running as rows
from holdfast.backends.sqlite.verbs.counting import count, minute_of
from holdfast.backends.sqlite.verbs.rescue import lose
from holdfast.backends.sqlite.verbs.running import Running
from holdfast.model.budget import after_return
from holdfast.model.instants import span_micros
from holdfast.model.job import Lease
from holdfast.model.outcome import Cancelled, Completed, Failed, Failure, Lost, Outcome, Retried, Snoozed
from holdfast.store.values import Finish, Standing, Verdict

_WORDS = {
    Completed: "completed",
    Retried: "retried",
    Snoozed: "snoozed",
    Failed: "failed",
    Cancelled: "cancelled",
    Lost: "lost",
}
_encode = msgspec.json.encode
_decode_seqs = msgspec.json.Decoder(list[int]).decode


def finish(tx: Tx, finishes: Sequence[Finish]) -> list[Verdict]:
    """Write each outcome whose lease is held; LOST for the others, but DONE for what was written before."""
    plain: dict[int, dict[int, None]] = {}
    others = 0
    for item in finishes:
        lease, outcome = item.lease, item.outcome
        if type(outcome) is Completed and outcome.result is None:
            lot = plain.get(lease.fence)
            if lot is None:
                lot = plain[lease.fence] = {}
            lot[lease.seq] = None
        else:
            others += 1
    refused = {(seq, fence) for fence, seqs in plain.items() for seq in _complete_many(tx, fence, list(seqs))}
    if not refused and not others:
        return [Verdict.DONE] * len(finishes)
    return [
        (Verdict.LOST if (item.lease.seq, item.lease.fence) in refused else Verdict.DONE)
        if _is_plain(item.outcome)
        else _finish_one(tx, item.lease, item.outcome)
        for item in finishes
    ]


def _is_plain(outcome: Outcome) -> bool:
    return type(outcome) is Completed and outcome.result is None


def _complete_many(tx: Tx, fence: int, seqs: list[int]) -> list[int]:
    """Complete jobs that were claimed together; return those not completed under this fence, now or before."""
    lot = {"seqs": _encode(seqs).decode(), "fence": fence}
    tx.run("count_completed", {**lot, "now": tx.now, "minute": minute_of(tx.now), "keyed": 0})
    completed = tx.run("complete_many", {**lot, "now": tx.now})
    tx.run("leave_running", lot)
    if completed == len(seqs):
        return []
    done = set(_decode_seqs(tx.value("completed_among", lot)))
    return [seq for seq in seqs if seq not in done and not _complete(tx, seq, fence, None)]


def complete(tx: Tx, lease: Lease, result: str | None) -> Verdict:
    """Complete one job under its fence; the last statement of a handler's transaction."""
    return Verdict.DONE if _complete(tx, lease.seq, lease.fence, result) else Verdict.LOST


def _complete(tx: Tx, seq: int, fence: int, result: str | None) -> bool:
    written = tx.run("complete_one", {"seq": seq, "fence": fence, "now": tx.now, "result": result})
    if not written:
        return False
    lot = {"seqs": _encode([seq]).decode(), "fence": fence}
    tx.run("count_completed", {**lot, "now": tx.now, "minute": minute_of(tx.now), "keyed": 1})
    was_head = tx.value("leave_running_alone", {"seq": seq, "fence": fence})
    if was_head:
        lines.head_left(tx, seq)
    return True


def _finish_one(tx: Tx, lease: Lease, outcome: Outcome) -> Verdict:
    if isinstance(outcome, Completed):
        written = complete(tx, lease, outcome.result) is Verdict.DONE
    else:
        running = rows.find(tx, lease.seq, lease.fence)
        written = running is not None
        if running is not None:
            _end_otherwise(tx, running, outcome)
    if written or rows.was_ended(tx, lease, _WORDS[type(outcome)]):
        return Verdict.DONE
    return Verdict.LOST


def _end_otherwise(tx: Tx, running: Running, outcome: Retried | Snoozed | Failed | Cancelled | Lost) -> None:
    match outcome:
        case Retried(delay, failure):
            rows.record(tx, running, "retried", failure)
            rows.to_scheduled(tx, running, running.counters, tx.now + span_micros(delay))
            count(tx, running.lane_id, retried=1)
        case Snoozed(delay):
            rows.record(tx, running, "snoozed", None)
            rows.to_scheduled(tx, running, after_return(running.counters), tx.now + span_micros(delay))
        case Failed(failure):
            rows.record(tx, running, "failed", failure)
            rows.to_failed(tx, running, f"{failure.error_class}: {failure.message}")
        case Cancelled(reason):
            rows.record(tx, running, "cancelled", Failure("Cancelled", reason))
            rows.to_cancelled(tx, running, reason)
        case Lost(failure):
            lose(tx, running, failure, alone=True, by_holder=True)
        case _:
            assert_never(outcome)


def standing(tx: Tx, lease: Lease) -> Standing:
    """Tell how a lease stands."""
    return Standing(tx.value("standing", {"seq": lease.seq, "fence": lease.fence}))
