"""Checks and encodes the events of a caller for a store to append."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final
from uuid import UUID

from holdfast.errors import ConfigError, PayloadError
from holdfast.model.event import NewEvent
from holdfast.model.ids import new_ids
from holdfast.model.names import check_name
from holdfast.runtime.payload import encode_headers, encode_value
from holdfast.streams.consumer import check_stream

MAX_EVENTS: Final = 100_000
_FIELDS: Final = frozenset({"stream", "name", "payload", "headers", "expected_version", "event_id", "category"})


def new_events(category: str, events: Iterable[Mapping[str, Any]]) -> list[NewEvent]:
    """Return the events to append, from mappings with `stream`, `name` and optional fields such as `payload`.

    Raises `ConfigError` or `PayloadError`, naming the item; nothing is appended then.
    """
    given = list(events)
    if len(given) > MAX_EVENTS:
        raise ConfigError(f"{len(given)} events in one append: pass at most {MAX_EVENTS} at a time")
    ids = new_ids(len(given))
    seen: set[tuple[str, str]] = set()
    made: list[NewEvent] = []
    for number, (fresh, event) in enumerate(zip(ids, given, strict=True)):
        try:
            made.append(_new_event(category, fresh, event, seen))
        except (ConfigError, PayloadError) as error:
            if len(given) == 1:
                raise
            raise type(error)(f"event {number} of {len(given)}: {error}") from error
    return made


def _new_event(category: str, fresh: str, event: Mapping[str, Any], seen: set[tuple[str, str]]) -> NewEvent:
    if not (event.keys() <= _FIELDS and "stream" in event and "name" in event):
        unknown = set(event) - _FIELDS
        wrong = f"has unknown fields: {', '.join(sorted(map(str, unknown)))}" if unknown else "lacks a stream or a name"
        raise ConfigError(f"an event {wrong}; its fields are {', '.join(sorted(_FIELDS))}")
    where = check_name("category", event.get("category", category))
    stream = check_stream(event["stream"])
    name = check_name("event", event["name"])
    expected = event.get("expected_version")
    if expected is not None:
        _check_version(expected)
        if (where, stream) in seen:
            raise ConfigError(f"only the first event for stream {stream!r} in one append may carry expected_version")
    seen.add((where, stream))
    return NewEvent(
        id=_event_id(event.get("event_id"), fresh),
        category=where,
        stream=stream,
        name=name,
        payload=encode_value(event.get("payload"), f"the payload of event {name!r}"),
        headers=encode_headers(event.get("headers")),
        expected_version=expected,
    )


def _check_version(version: object) -> None:
    if isinstance(version, bool) or not isinstance(version, int) or version < 0:
        raise ConfigError(
            f"expected_version={version!r}: pass the current version of the stream, 0 if it has no events"
        )


def _event_id(given: object, fresh: str) -> str:
    if given is None:
        return fresh
    try:
        return str(UUID(str(given)))
    except ValueError:
        raise ConfigError(f"event_id={given!r} is not a UUID: pass one, or omit it") from None
