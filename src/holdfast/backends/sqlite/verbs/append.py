"""Append events, all or none: the caller rolls back when this raises."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.backends.sql.steps import records
from holdfast.backends.sql.streams.categories import Category, find_categories, make_categories
from holdfast.backends.sql.streams.placing import Known, Place, Placing, answers, as_known, places_of
from holdfast.backends.sqlite.connection import Tx
from holdfast.backends.sqlite.execute import drive
from holdfast.model.event import Appended, NewEvent


def append(tx: Tx, events: Sequence[NewEvent]) -> list[Appended]:
    """Append events; the write lock is held."""
    known = drive(tx.raw, tx.now, records(Known, "known_events", ids=[event.id for event in events]))
    appended = as_known(known)
    fresh = [event for event in events if event.id not in appended]
    places = places_of(fresh, _categories(tx, {event.category for event in fresh}))
    streams = {(place[0], event.stream) for place, event in zip(places, fresh, strict=True)}
    heads = {place: _head(tx, place) for place in set(places)}
    work = Placing(heads, {stream: _version(tx, *stream) for stream in streams})
    for event, place in zip(fresh, places, strict=True):
        if event.id not in appended:
            appended[event.id] = work.add(event, place)
    tx.many("add_event", work.rows)
    tx.many("move_head", work.heads())
    return answers(events, appended)


def _categories(tx: Tx, names: set[str]) -> dict[str, Category]:
    found = drive(tx.raw, tx.now, find_categories(names))
    missing = names - found.keys()
    return found | drive(tx.raw, tx.now, make_categories(missing)) if missing else found


def _head(tx: Tx, place: Place) -> tuple[int, int]:
    position, recorded_at = tx.row("head", {"category_id": place[0], "partition_id": place[1]})
    return position, max(tx.now, recorded_at)


def _version(tx: Tx, category_id: int, stream: str) -> int:
    return int(tx.value("version_of_stream", {"category_id": category_id, "stream": stream}) or 0)
