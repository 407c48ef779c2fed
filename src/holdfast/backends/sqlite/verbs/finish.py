"""Complete jobs: the hot path at the end of an attempt.

Plain completions, nearly all in practice, take three statements for all jobs of one claim, each with the fence. Only if
fewer rows were written than requested, further statements find out which. A single completion, one with a result and
that of the head of an order key are written one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from holdfast.backends.sql.job_writes import minute_of
from holdfast.backends.sqlite.connection import Tx
from holdfast.model.outcome import Completed
from holdfast.store.job_rows import CompletedRows, Key
from holdfast.store.values import Finish

_encode = msgspec.json.encode
_decode_seqs = msgspec.json.Decoder(list[int]).decode


def complete_all(tx: Tx, finishes: Sequence[Finish]) -> CompletedRows:
    """Complete the jobs that are held under their leases."""
    plain: dict[int, dict[int, None]] = {}
    others: dict[Key, str] = {}
    for item in finishes:
        lease, outcome = item.lease, item.outcome
        if isinstance(outcome, Completed) and outcome.result is not None:
            others.setdefault((lease.seq, lease.fence), outcome.result)
        else:
            lot = plain.get(lease.fence)
            if lot is None:
                lot = plain[lease.fence] = {}
            lot[lease.seq] = None
    heads: list[int] = []
    refused: set[Key] = set()
    for fence, seqs in plain.items():
        if len(seqs) > 1:
            _complete_many(tx, fence, list(seqs), refused, heads)
        else:
            _complete(tx, (next(iter(seqs)), fence), None, refused, heads)
    for (seq, fence), result in others.items():
        _complete(tx, (seq, fence), result, refused, heads)
    return CompletedRows(refused, heads)


def _complete_many(tx: Tx, fence: int, seqs: list[int], refused: set[Key], heads: list[int]) -> None:
    """Complete jobs that were claimed together."""
    lot = {"seqs": _encode(seqs).decode(), "fence": fence}
    tx.run("count_completed", {**lot, "now": tx.now, "minute": minute_of(tx.now), "keyed": 0})
    completed = tx.run("complete_many", {**lot, "now": tx.now})
    if completed == len(seqs):
        tx.run("leave_completed", lot)
        return
    held = _held_under(tx, lot)
    tx.run("leave_completed", lot)
    for seq in _held_under(tx, lot):  # the remaining ones are heads of order keys
        _complete(tx, (seq, fence), None, refused, heads)
    refused.update((seq, fence) for seq in seqs if seq not in held)


def _held_under(tx: Tx, lot: Mapping[str, object]) -> set[int]:
    return set(_decode_seqs(tx.value("held_under", lot)))


def _complete(tx: Tx, key: Key, result: str | None, refused: set[Key], heads: list[int]) -> None:
    """Complete one job, whether it is the head of an order key or not."""
    seq, fence = key
    if not tx.run("complete_one", {"seq": seq, "fence": fence, "now": tx.now, "result": result}):
        refused.add(key)
        return
    lot = {"seqs": _encode([seq]).decode(), "fence": fence}
    tx.run("count_completed", {**lot, "now": tx.now, "minute": minute_of(tx.now), "keyed": 1})
    if tx.value("leave_completed_one", {"seq": seq, "fence": fence}):
        heads.append(seq)
