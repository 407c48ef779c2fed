"""The lines of order keys.

Of each line one job, the head, lies in ready, scheduled or running; the others are blocked. `bring_up` looks who is
first and makes that one the head. It counts nothing, so it may be repeated; and since whoever changes a line holds the
write lock, nobody is stranded and no line has two heads.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.backends.sqlite.connection import Tx
from holdfast.model.budget import Counters
from holdfast.model.turn import run_at_of

Line = tuple[str, str]


def lines_for(tx: Tx, wanted: Iterable[Line]) -> dict[Line, int]:
    """Return the ids of these lines, (queue, order_key); those that are not there yet are made, without a head."""
    found: dict[Line, int] = {}
    for queue, order_key in wanted:
        names = {"queue": queue, "order_key": order_key}
        line_id = tx.value("line_of", names)
        found[queue, order_key] = tx.value("add_line", names) if line_id is None else line_id
    return found


def end_of_line(tx: Tx, line: Line, seq: int, counters: Counters) -> None:
    """Let a job that has ended stand in its line anew, behind all others."""
    (line_id,) = lines_for(tx, [line]).values()
    place = tx.value("take_seqs", {"count": 1})
    tx.run("block", {"line_id": line_id, "place": place, "seq": seq, **_columns(counters)})
    settle(tx, [line])


def settle(tx: Tx, lines: Iterable[Line]) -> None:
    """See that each of these lines has a head, or is gone."""
    for queue, order_key in lines:
        line_id, head_seq = tx.row("line_of", {"queue": queue, "order_key": order_key})
        if head_seq is None:
            bring_up(tx, line_id)


def head_left(tx: Tx, seq: int) -> None:
    """The head of a line has ended, and lies among those that have: bring up the next."""
    line_id = tx.value("line_of_head", {"seq": seq})
    if line_id is not None:
        bring_up(tx, line_id)


def bring_up(tx: Tx, line_id: int) -> None:
    """Make the first who waits the head of a line that has none; a line in which nobody waits is removed."""
    first = tx.row("first_blocked", {"line_id": line_id})
    if first is None:
        tx.run("drop_line", {"line_id": line_id})
        return
    place, seq, lane_id, turn, priority, *counted = first
    tx.run("leave_blocked", {"line_id": line_id, "place": place})
    tx.run("set_head", {"line_id": line_id, "seq": seq})
    run_at = run_at_of(turn, priority)
    row = {"seq": seq, "keyed": 1, **_columns(Counters(*counted))}
    if run_at > tx.now:
        tx.run("schedule_again", {**row, "run_at": run_at, "retrying": 0})
    else:
        tx.run("back_to_ready", {**row, "lane_id": lane_id, "turn": turn})
        tx.brought_up = True


def _columns(counters: Counters) -> dict[str, int]:
    return {
        "attempt": counters.attempt,
        "excused": counters.excused,
        "interrupted": counters.interrupted,
        "lost": counters.lost,
    }
