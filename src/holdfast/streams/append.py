"""From what a caller says to events that a store can append: checked and encoded."""

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
    """Return events to append, made of mappings with `stream`, `name`, `payload` and, where wanted, more.

    Raises `ConfigError` or `PayloadError` that names the item; then nothing is appended.
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
    unknown = set(event) - _FIELDS
    if unknown or not {"stream", "name"} <= set(event):
        wrong = f"has {', '.join(sorted(map(str, unknown)))}" if unknown else "lacks a stream or a name"
        raise ConfigError(f"an event {wrong}: it takes {', '.join(sorted(_FIELDS))}")
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
        raise ConfigError(f"expected_version={version!r}: pass the version the stream has, 0 if it has no event yet")


def _event_id(given: object, fresh: str) -> str:
    if given is None:
        return fresh
    try:
        return str(UUID(str(given)))
    except ValueError:
        raise ConfigError(f"event_id={given!r} is no UUID: pass one, or leave it out") from None
