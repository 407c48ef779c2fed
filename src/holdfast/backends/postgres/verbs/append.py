"""Append events, all or none.

The heads of the partitions are locked in ascending order by one statement, and all is written by the next. Very many
events are copied in, under the same locks: then what the second statement looks up is asked for, and their places are
found here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec
from psycopg.types.numeric import Int4, Int8  # a plain int is sent by its size: each would be prepared by itself

from holdfast.backends.postgres.verbs.copying import event_row, stream
from holdfast.backends.postgres.verbs.events import Category, find_categories, make_categories
from holdfast.backends.sql.steps import Ask, Numbers, Rows, load, rows, run, together
from holdfast.errors import VersionConflict
from holdfast.model.event import DEFAULT_PARTITIONS, Appended, NewEvent, partition_of
from holdfast.store.steps import Steps

Place = tuple[int, int]  # category and partition
_encode = msgspec.json.encode


def append(events: Sequence[NewEvent], categories: Mapping[str, Category]) -> Steps[list[Appended]]:
    """Append events to categories that are there."""
    distinct = _distinct(events)
    places = _places(distinct, categories)
    write = _write_one(distinct[0], places[0]) if len(distinct) == 1 else _write(distinct, places)
    _, found = yield from together(_lock(places), write)
    return _answers(events, _judged(distinct, found))


def _distinct(events: Sequence[NewEvent]) -> list[NewEvent]:
    """Return each event once: one that is given again has the place of its first."""
    firsts: dict[str, NewEvent] = {}
    for event in events:
        firsts.setdefault(event.id, event)
    return list(firsts.values())


def _places(events: Sequence[NewEvent], categories: Mapping[str, Category]) -> list[Place]:
    known: dict[tuple[str, str], Place] = {}
    for event in events:
        key = (event.category, event.stream)
        if key not in known:
            category = categories[event.category]
            known[key] = (category.category_id, partition_of(event.stream, category.partitions))
    return [known[event.category, event.stream] for event in events]


def _lock(places: Sequence[Place]) -> Ask:
    return Ask("lock_heads", _arrays(sorted(set(places))))


def _arrays(places: Sequence[Place]) -> dict[str, object]:
    return {
        "category_ids": Numbers(category_id for category_id, _ in places),
        "partition_ids": Numbers(partition_id for _, partition_id in places),
    }


def _headers(event: NewEvent) -> str | None:
    return None if event.headers is None else _encode(event.headers).decode()


def _write_one(event: NewEvent, place: Place) -> Ask:
    category_id, partition_id = place
    parameters: dict[str, object] = {
        "event_id": event.id,
        "category_id": Int4(category_id),
        "partition_id": Int4(partition_id),
        "stream": event.stream,
        "event_name": event.name,
        "payload": event.payload,
        "headers": _headers(event),
        "expected": None if event.expected_version is None else Int8(event.expected_version),
    }
    return Ask("append_event", parameters)


def _write(events: Sequence[NewEvent], places: Sequence[Place]) -> Ask:
    columns: dict[str, object] = {
        "ids": f"{{{','.join(event.id for event in events)}}}",
        "streams": [event.stream for event in events],
        "names": [event.name for event in events],
        "payloads": [event.payload for event in events],
        "headers": [_headers(event) for event in events],
        "expected": [event.expected_version for event in events],
    }
    return Ask("append_events", {**_arrays(places), **columns})


def _judged(events: Sequence[NewEvent], found: Rows) -> dict[str, Appended]:
    conflicts: list[tuple[int, int]] = [(row[0], row[2]) for row in found if row[1] == "conflict"]
    if conflicts:
        place, actual = min(conflicts)
        raise _conflict(events[place - 1], actual)
    answers: dict[str, Appended] = {}
    for place, verdict, version, partition_id, position in found:
        event_id = events[int(place) - 1].id
        answers[event_id] = Appended(event_id, version, partition_id, position, is_new=verdict == "new")
    return answers


def _conflict(event: NewEvent, actual: int) -> VersionConflict:
    return VersionConflict(event.category, event.stream, expected=event.expected_version or 0, actual=actual)


def _answers(events: Sequence[NewEvent], appended: Mapping[str, Appended]) -> list[Appended]:
    """Answer for each event; an id that is given twice is new only once."""
    answers: list[Appended] = []
    told: set[str] = set()
    for event in events:
        answer = appended[event.id]
        answers.append(msgspec.structs.replace(answer, is_new=False) if event.id in told else answer)
        told.add(event.id)
    return answers


# --- to new categories ------------------------------------------------------------------------------------------------


def append_anew(events: Sequence[NewEvent], categories: Mapping[str, Category]) -> Steps[list[Appended]]:
    """Append events of which some are of categories that may not be there yet."""
    known = yield from _known(events)
    fresh = [event for event in _distinct(events) if event.id not in known]
    missing = {event.category for event in fresh} - set(categories)
    found = yield from find_categories(sorted(missing))
    missing -= set(found)
    if missing:
        _check_first_versions([event for event in fresh if event.category in missing])
        yield from make_categories(sorted(missing), DEFAULT_PARTITIONS)
        found |= yield from find_categories(sorted(missing))
    appended = (yield from append(fresh, {**categories, **found})) if fresh else []
    return _answers(events, known | {event.id: event for event in reversed(appended)})


def _known(events: Sequence[NewEvent]) -> Steps[dict[str, Appended]]:
    found = yield from rows("known_events", ids=f"{{{','.join(event.id for event in events)}}}")
    return _as_known(found)


def _as_known(found: Rows) -> dict[str, Appended]:
    return {
        event_id: Appended(event_id, version, partition_id, position, is_new=False)
        for event_id, version, partition_id, position in found
    }


def _check_first_versions(events: Sequence[NewEvent]) -> None:
    """Before a category is made: nothing may be, if a stream of it were expected to have events."""
    versions: dict[tuple[str, str], int] = defaultdict(int)
    for event in events:
        key = (event.category, event.stream)
        if event.expected_version not in {None, versions[key]}:
            raise _conflict(event, versions[key])
        versions[key] += 1


# --- very many --------------------------------------------------------------------------------------------------------


def copy(events: Sequence[NewEvent], categories: Mapping[str, Category]) -> Steps[list[Appended]]:
    """Copy events in, in a transaction that is rolled back when this raises."""
    places = _places(events, categories)
    partitions = sorted(set(places))
    streams = list({(place[0], event.stream) for place, event in zip(places, events, strict=True)})
    _, heads, known, versions = yield from together(
        _lock(places),
        Ask("heads_and_clock", _arrays(partitions)),
        Ask("known_events", {"ids": f"{{{','.join(event.id for event in events)}}}"}),
        Ask(
            "stream_versions",
            {"category_ids": Numbers(number for number, _ in streams), "streams": [name for _, name in streams]},
        ),
    )
    work = _Copy(heads, versions)
    appended = _as_known(known)
    for event, place in zip(events, places, strict=True):
        if event.id not in appended:
            appended[event.id] = work.add(event, place)
    if work.rows:
        yield from load("copy_events", stream(work.rows))
        yield from run("move_heads", **work.moves())
    return _answers(events, appended)


class _Copy:
    """Where each event goes, and what is to be written."""

    def __init__(self, heads: Rows, versions: Rows) -> None:
        self._positions: dict[Place, int] = {(head[0], head[1]): head[2] for head in heads}
        self._recorded: dict[Place, int] = {(head[0], head[1]): head[3] for head in heads}
        self._versions: dict[tuple[int, str], int] = {(number, name): version for number, name, version in versions}
        self.rows: list[bytes] = []

    def add(self, event: NewEvent, place: Place) -> Appended:
        """Give a new event its place."""
        version = self._versions[place[0], event.stream]
        if event.expected_version is not None and event.expected_version != version:
            raise _conflict(event, version)
        self._versions[place[0], event.stream] = version = version + 1
        self._positions[place] = position = self._positions[place] + 1
        self.rows.append(
            event_row(
                (*place, position),
                stream_name=event.stream.encode(),
                version=version,
                event_id=event.id,
                name=event.name.encode(),
                payload=event.payload.encode(),
                headers=None if event.headers is None else _encode(event.headers),
                recorded_at=self._recorded[place],
            )
        )
        return Appended(event.id, version, place[1], position, is_new=True)

    def moves(self) -> dict[str, object]:
        """Return where the heads are now."""
        places = sorted(self._positions)
        return {
            **_arrays(places),
            "position_ids": Numbers(self._positions[place] for place in places),
            "recorded_ats": Numbers(self._recorded[place] for place in places),
        }
