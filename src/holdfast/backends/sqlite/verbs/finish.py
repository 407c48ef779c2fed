"""Write the ends of attempts, a verdict for each.

Plain completions, nearly all there is, go through four statements for the whole batch. The rest is rare and goes row by
row. All happens under the write lock, so what was found held is held until the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import msgspec

from holdfast.backends.sqlite.connection import Tx
from holdfast.backends.sqlite.verbs import running as rows
from holdfast.backends.sqlite.verbs.counting import count, minute_of
from holdfast.backends.sqlite.verbs.leases import held_among
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


def finish(tx: Tx, finishes: Sequence[Finish]) -> list[Verdict]:
    """Write each outcome whose lease is held; LOST for the others, but DONE for what was written before."""
    held = held_among(tx, [finish.lease for finish in finishes])
    completed: list[int] = []
    written: set[int] = set()
    verdicts: list[Verdict] = []
    for item in finishes:
        lease, outcome = item.lease, item.outcome
        if held.get(lease.seq) != lease.fence:
            repeated = rows.was_ended(tx, lease, _WORDS[type(outcome)])
            verdicts.append(Verdict.DONE if repeated else Verdict.LOST)
            continue
        verdicts.append(Verdict.DONE)
        if lease.seq in written:
            continue
        written.add(lease.seq)
        if type(outcome) is Completed and outcome.result is None:
            completed.append(lease.seq)
        else:
            _finish_one(tx, lease, outcome)
    if completed:
        _complete_many(tx, completed)
    return verdicts


def _complete_many(tx: Tx, seqs: list[int]) -> None:
    text = _encode(seqs).decode()
    tx.run("count_completed", {"seqs": text, "now": tx.now, "minute": minute_of(tx.now)})
    tx.run("complete_many", {"seqs": text, "now": tx.now})
    tx.run("leave_running", {"seqs": text})


def complete(tx: Tx, lease: Lease, result: str | None) -> Verdict:
    """Complete one job under its fence; the last statement of a handler's transaction."""
    written = tx.run("complete_one", {"seq": lease.seq, "fence": lease.fence, "now": tx.now, "result": result})
    if not written:
        return Verdict.LOST
    text = _encode([lease.seq]).decode()
    tx.run("count_completed", {"seqs": text, "now": tx.now, "minute": minute_of(tx.now)})
    tx.run("leave_running", {"seqs": text})
    return Verdict.DONE


def _finish_one(tx: Tx, lease: Lease, outcome: Outcome) -> None:
    if isinstance(outcome, Completed):
        complete(tx, lease, outcome.result)
        return
    running = rows.find(tx, lease.seq, lease.fence)
    if running is not None:
        _end_otherwise(tx, running, outcome)


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
            lose(tx, running, failure, isolated=True, by_holder=True)
        case _:
            assert_never(outcome)


def standing(tx: Tx, lease: Lease) -> Standing:
    """Tell how a lease stands."""
    return Standing(tx.value("standing", {"seq": lease.seq, "fence": lease.fence}))
