"""Append events, all or none.

One statement locks the heads of the partitions in ascending order, and the next one writes all events. Large batches
are copied in, under the same locks: then the data that the second statement would look up is queried, and the places of
the events are computed here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.backends.postgres.verbs.copying import event_row, stream
from holdfast.backends.sql.steps import Ask, Numbers, Rows, each, load, together
from holdfast.backends.sql.streams import categories as categories_of
from holdfast.model.event import Appended, NewEvent
from holdfast.store.steps import Steps
from holdfast.store.stream_values import Category
from holdfast.store.verbs.placing import (
    Known,
    Place,
    Placing,
    answers,
    as_known,
    conflict,
    distinct,
    headers_of,
    places_of,
)


def append(events: Sequence[NewEvent], categories: Mapping[str, Category]) -> Steps[list[Appended]]:
    """Append events to existing categories."""
    once = distinct(events)
    places = places_of(once, categories)
    write = _write_one(once[0], places[0]) if len(once) == 1 else _write(once, places)
    _, found = yield from together(_lock(places), write)
    return answers(events, _judged(once, found))


def _lock(places: Sequence[Place]) -> Ask:
    return Ask("lock_heads", _arrays(sorted(set(places))))


def _arrays(places: Sequence[Place]) -> dict[str, object]:
    return {
        "category_ids": Numbers(category_id for category_id, _ in places),
        "partition_ids": Numbers(partition_id for _, partition_id in places),
    }


def _write_one(event: NewEvent, place: Place) -> Ask:
    category_id, partition_id = place
    parameters: dict[str, object] = {
        "event_id": event.id,
        "category_id": category_id,
        "partition_id": partition_id,
        "stream": event.stream,
        "event_name": event.name,
        "payload": event.payload,
        "headers": headers_of(event),
        "expected": event.expected_version,
    }
    return Ask("append_event", parameters)


def _write(events: Sequence[NewEvent], places: Sequence[Place]) -> Ask:
    columns: dict[str, object] = {
        "ids": _ids(events),
        "streams": [event.stream for event in events],
        "names": [event.name for event in events],
        "payloads": [event.payload for event in events],
        "headers": [headers_of(event) for event in events],
        "expected": [event.expected_version for event in events],
    }
    return Ask("append_events", {**_arrays(places), **columns})


def _judged(events: Sequence[NewEvent], found: Rows) -> dict[str, Appended]:
    conflicts: list[tuple[int, int]] = [
        (place, version) for place, verdict, version, *_ in found if verdict == "conflict"
    ]
    if conflicts:
        place, actual = min(conflicts)
        raise conflict(events[place - 1], actual)
    appended: dict[str, Appended] = {}
    for place, verdict, version, partition_id, position in found:
        event_id = events[int(place) - 1].id
        appended[event_id] = Appended(event_id, version, partition_id, position, is_new=verdict == "new")
    return appended


# --- to new categories ------------------------------------------------------------------------------------------------


def append_to_new(events: Sequence[NewEvent], categories: Mapping[str, Category]) -> Steps[list[Appended]]:
    """Append events some of whose categories may not exist yet."""
    look = Ask("known_events", {"ids": _ids(events)}, Known)
    return (yield from categories_of.append_to_new(events, categories, look, append))


def _ids(events: Sequence[NewEvent]) -> str:
    return f"{{{','.join(event.id for event in events)}}}"


# --- large batches ----------------------------------------------------------------------------------------------------


def copy(events: Sequence[NewEvent], categories: Mapping[str, Category]) -> Steps[list[Appended]]:
    """Copy events in; the transaction is rolled back if this raises."""
    places = places_of(events, categories)
    partitions = sorted(set(places))
    streams = list({(place[0], event.stream) for place, event in zip(places, events, strict=True)})
    _, heads, known, versions = yield from together(
        _lock(places),
        Ask("heads_and_clock", _arrays(partitions)),
        Ask("known_events", {"ids": _ids(events)}, Known),
        Ask(
            "stream_versions",
            {"category_ids": Numbers(number for number, _ in streams), "streams": [name for _, name in streams]},
        ),
    )
    work = Placing(
        {(category_id, number): (position, recorded_at) for category_id, number, position, recorded_at in heads},
        {(category_id, name): version for category_id, name, version in versions},
    )
    appended = as_known(known)
    for event, place in zip(events, places, strict=True):
        if event.id not in appended:
            appended[event.id] = work.add(event, place)
    if work.rows:
        yield from load("copy_events", stream(list(map(event_row, work.rows))))
        yield from each("move_head", work.heads())
    return answers(events, appended)
