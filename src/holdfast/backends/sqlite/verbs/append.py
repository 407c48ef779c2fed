"""Append events, all or none: the caller rolls back when this raises. The write lock is held."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.backends.sql.streams.categories import make_categories
from holdfast.backends.sqlite.connection import Tx, as_json
from holdfast.backends.sqlite.execute import direct
from holdfast.model.event import Appended, NewEvent
from holdfast.store.steps import Steps
from holdfast.store.stream_values import Category
from holdfast.store.verbs.placing import Known, Place, Placing, answers, as_known, places_of


def append(events: Sequence[NewEvent]) -> Steps[list[Appended]]:
    """Append events."""
    appended, categories = yield from direct(lambda tx: _look(tx, events))()
    fresh = [event for event in events if event.id not in appended]
    missing = {event.category for event in fresh} - categories.keys()
    if missing:
        categories |= yield from make_categories(missing)
    places = places_of(fresh, categories)

    def write(tx: Tx) -> None:
        streams = {(place[0], event.stream) for place, event in zip(places, fresh, strict=True)}
        heads = {place: _head(tx, place) for place in set(places)}
        work = Placing(heads, {stream: _version(tx, *stream) for stream in streams})
        for event, place in zip(fresh, places, strict=True):
            if event.id not in appended:
                appended[event.id] = work.add(event, place)
        tx.many("add_event", work.rows)
        tx.many("move_head", work.heads())

    yield from direct(write)()
    return answers(events, appended)


def _look(tx: Tx, events: Sequence[NewEvent]) -> tuple[dict[str, Appended], dict[str, Category]]:
    """Return the events that are stored already, and those of the categories that exist."""
    known = map(Known._make, tx.rows("known_events", {"ids": as_json([event.id for event in events])}))
    found = [tx.rows("find_category", {"category": name}) for name in {event.category for event in events}]
    categories = [Category._make(row) for rows in found for row in rows]
    return as_known(known), {category.category: category for category in categories}


def _head(tx: Tx, place: Place) -> tuple[int, int]:
    ((position, recorded_at),) = tx.rows("find_head", {"category_id": place[0], "partition_id": place[1]})
    return position, max(tx.now, recorded_at)


def _version(tx: Tx, category_id: int, stream: str) -> int:
    return int(tx.value("version_of_stream", {"category_id": category_id, "stream": stream}) or 0)
