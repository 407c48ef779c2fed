"""Append events, all or none.

The heads of the partitions are locked in ascending order, until the commit. Statements that follow in the same trip see
what earlier appends have committed: the versions of streams, the known ids. Under repeatable read, these
are read beside it, too: a version only grows, and an event stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from holdfast.backends.mysql.execute import Committed, final
from holdfast.backends.sql.steps import Ask, Each, Rows, together
from holdfast.backends.sql.streams import categories as categories_of
from holdfast.model.event import Appended, NewEvent
from holdfast.store.steps import Steps
from holdfast.store.stream_values import Category
from holdfast.store.verbs.placing import Known, Place, Placing, answers, as_known, distinct, places_of

_COLUMNS = (
    "category_id",
    "partition_id",
    "position_id",
    "stream",
    "version",
    "event_id",
    "event_name",
    "payload",
    "headers",
    "recorded_at",
)


def append(
    events: Sequence[NewEvent], categories: Mapping[str, Category], *, is_whole: bool = True
) -> Steps[list[Appended]]:
    """Append events to existing categories. `is_whole`: nothing else is to be done in the transaction."""
    once = distinct(events)
    places = places_of(once, categories)
    streams = sorted({(place[0], event.stream) for place, event in zip(places, once, strict=True)})
    partitions = sorted(set(places))
    look = Ask("known_events", {"ids": [event.id for event in once]}, Known)
    *heads, known, clock = yield from together(
        *(Ask("lock_head", {"category_id": place[0], "partition_id": place[1]}) for place in partitions),
        look,
        Ask("store_clock", {}),
    )
    asks = [Ask("version_of_stream", {"category_id": number, "stream": stream}) for number, stream in streams]
    own = yield from together(*asks)
    committed: list[Rows] | None = yield Committed((*asks, look))
    versions = _latest(own, committed)
    known += committed[-1] if committed else []
    ((at,),) = clock
    work = Placing(
        {place: _head(head[0], at) for place, head in zip(partitions, heads, strict=True)},
        dict(zip(streams, versions, strict=True)),
    )
    appended = as_known(known)
    for event, place in zip(once, places, strict=True):
        if event.id not in appended:
            appended[event.id] = work.add(event, place)
    if work.rows:
        rows: list[dict[str, object]] = [dict(zip(_COLUMNS, row, strict=True)) for row in work.rows]
        run = final if is_whole else together
        yield from run(Each("add_event", rows), Each("move_head", _moved(work, rows)))
    return answers(events, appended)


def _latest(own: Sequence[Rows], committed: Sequence[Rows] | None) -> list[int]:
    """Return the last version of each stream, of both views."""
    return [max(mine, theirs) for ((mine,),), ((theirs,),) in zip(own, committed or own, strict=False)]


def _head(row: tuple[int, int, int, int], now: int) -> tuple[int, int]:
    _, _, position, recorded_at = row
    return position, max(now, recorded_at)


def _moved(work: Placing, rows: Sequence[Mapping[str, object]]) -> list[dict[str, int]]:
    """Return the heads that have moved."""
    moved: set[Place] = {(int(str(row["category_id"])), int(str(row["partition_id"]))) for row in rows}
    return [head for head in work.heads() if (head["category_id"], head["partition_id"]) in moved]


def append_to_new(events: Sequence[NewEvent], categories: Mapping[str, Category]) -> Steps[list[Appended]]:
    """Append events some of whose categories may not exist yet."""
    look = Ask("known_events", {"ids": [event.id for event in events]}, Known)
    write = partial(append, is_whole=False)
    return (yield from categories_of.append_to_new(events, categories, look, write))
