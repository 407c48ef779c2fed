"""The lines of order keys.

Of each line one job, the head, lies in ready, scheduled or running; the others are blocked. Who puts a job into a line,
or ends its head, first takes the line's row and then looks, in a statement with a newer snapshot, who is first. So of
two who enqueue at once one waits for the other; and an enqueue that meets the end of the head comes before it, and is
seen, or after it, and finds the line as the end has left it. Nothing is counted, so the step may be repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast.backends.sql.steps import Numbers, rows, run
from holdfast.model.budget import Counters
from holdfast.store.steps import Steps

LineName = tuple[str, str]
Placed = tuple[int, int, int]  # lane_id, turn, seq


class Line(NamedTuple):
    """A line that is held until the end of the transaction. `head_seq` 0: it was made just now, or has no head yet."""

    line_id: int
    head_seq: int


def take_lines(wanted: Iterable[LineName]) -> Steps[dict[LineName, Line]]:
    """Hold these lines, (queue, order_key); those that are not there are made."""
    names = list(dict.fromkeys(wanted))
    found = yield from rows(
        "take_lines", queues=[queue for queue, _ in names], order_keys=[order_key for _, order_key in names]
    )
    return {(queue, order_key): Line(line_id, head_seq) for queue, order_key, line_id, head_seq in found}


def settle(vacant: Sequence[int], heads: dict[int, int]) -> Steps[None]:
    """Note the heads, by line, of lines that had none; remove those that have none still."""
    if heads:
        yield from run("set_heads", line_ids=Numbers(heads), seqs=Numbers(heads.values()))
    empty = [line_id for line_id in vacant if line_id not in heads]
    if empty:
        yield from run("drop_lines", line_ids=Numbers(empty))


def end_of_line(name: LineName, seq: int, counters: Counters) -> Steps[list[Placed]]:
    """Let a job that has ended stand in its line anew, behind all others; return where it lies if it is ready."""
    line = (yield from take_lines([name]))[name]
    yield from run(
        "block",
        seq=seq,
        line_id=line.line_id,
        attempt=counters.attempt,
        excused=counters.excused,
        interrupted=counters.interrupted,
        lost=counters.lost,
    )
    return [] if line.head_seq else (yield from _bring_up([line.line_id]))


def heads_left(seqs: Sequence[int]) -> Steps[list[Placed]]:
    """The heads of some lines have ended: bring up the next of each; return where those lie that are ready."""
    held = yield from rows("lock_lines", seqs=Numbers(seqs))
    return (yield from _bring_up([line_id for (line_id,) in held])) if held else []


def _bring_up(line_ids: Sequence[int]) -> Steps[list[Placed]]:
    return (yield from rows("bring_up", line_ids=Numbers(line_ids)))
