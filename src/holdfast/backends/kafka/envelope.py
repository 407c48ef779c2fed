"""An event as a Kafka record, and back.

```text
   stream          key, UTF-8       none: one stream for each partition, "~0"; unprintable: "~b64:…"; long: "~sha256:…"
   payload         value, JSON      null: null; not UTF-8: "~b64:…"; what is not JSON fails when the handler decodes it,
                                    never in the reader, and `content` has its bytes
   id, name        headers holdfast-id, holdfast-name; of others' records: derived from the place, "record"
   headers         headers as they are; those named holdfast-… are Holdfast's
   position        offset + 1       so a committed position is the next offset to read
```
"""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final
from uuid import UUID, uuid5

from holdfast.errors import ConfigError
from holdfast.model.event import BINARY, NewEvent, StoredEvent
from holdfast.model.ids import is_id
from holdfast.model.names import MAX_NAME

_OURS: Final = "holdfast-"
ID: Final = f"{_OURS}id"
NAME: Final = f"{_OURS}name"
VERSION: Final = f"{_OURS}version"
_FOREIGN_NAME: Final = "record"
_LONGEST: Final = 255  # characters of the name of a stream
_OWN: Final = 2  # headers of an event to which its producer gave none
_DIGITS: Final = 19
_LAST_MS: Final = 253_402_300_799_999  # the end of the year 9999
_NAMESPACE: Final = UUID("6f0c1f6e-41f5-5a0c-9d3b-6a4f4b8f2f11")

Headers = dict[str, bytes | str | None]


def headers_of(event: NewEvent | StoredEvent, version: int | None = None) -> Headers:
    """Return the headers of an event's record; none of the event's own replaces one of Holdfast's."""
    headers: Headers = {ID: event.id, NAME: event.name}
    if event.headers:
        headers = {**event.headers, **headers}
    if version is not None:
        headers[VERSION] = str(version)
    return headers


def check_headers(event: NewEvent) -> None:
    """Raise `ConfigError` for headers that would be read as those of Holdfast."""
    if event.headers and (taken := sorted(name for name in event.headers if name.startswith(_OURS))):
        raise ConfigError(f"headers {', '.join(taken)}: in Kafka, names that begin with {_OURS!r} are Holdfast's own")


def event_of(category: str, topic_id: str, message: Any) -> StoredEvent:
    """Return the event of a record; total: any bytes make an event."""
    partition, offset = message.partition(), message.offset()
    headers: Sequence[tuple[str, bytes | None]] = message.headers() or ()
    given: dict[str, str] = {}
    event_id: str | None
    name: str | None
    version: str | None = None
    if len(headers) == _OWN and headers[0][0] == ID and headers[1][0] == NAME:
        # Most records, without a dict and its changes: 0.4 of 1.8 us.
        event_id = (headers[0][1] or b"").decode("utf-8", "replace")
        name = (headers[1][1] or b"").decode("utf-8", "replace")
    else:
        given = {name: (value or b"").decode("utf-8", "replace") for name, value in headers}
        event_id, name, version = given.pop(ID, None), given.pop(NAME, None), given.pop(VERSION, None)
    if event_id is None or not is_id(event_id):
        event_id = _id(event_id, f"{topic_id}/{partition}/{offset}")
    _, millis = message.timestamp()  # of a producer's clock, if the topic says so: any number
    return StoredEvent(
        id=event_id,
        category=category,
        stream=_stream(message.key(), partition),
        name=_name(name),
        version=0 if version is None else _version(version),
        partition_id=partition,
        position=offset + 1,
        payload=_payload(message.value()),
        headers=given or None,
        recorded_us=millis * 1000 if 0 <= millis <= _LAST_MS else min(max(0, millis), _LAST_MS) * 1000,
    )


def _name(given: str | None) -> str:
    return given if given and len(given) <= MAX_NAME and given.isprintable() else _FOREIGN_NAME


def _id(given: str | None, place: str) -> str:
    try:
        return str(UUID(given)) if given else str(uuid5(_NAMESPACE, place))
    except ValueError:
        return str(uuid5(_NAMESPACE, place))


def _version(given: str) -> int:
    return int(given) if given.isascii() and given.isdigit() and len(given) < _DIGITS else 0


def _stream(key: bytes | None, partition: int) -> str:
    if key is None:
        return f"~{partition}"
    try:
        stream = key.decode()
    except UnicodeDecodeError:
        stream = ""
    if not stream or not stream.isprintable():  # a store keeps no NUL in a text
        stream = "~b64:" + urlsafe_b64encode(key).decode()
    return stream if len(stream) <= _LONGEST else "~sha256:" + sha256(key).hexdigest()


def _payload(value: bytes | None) -> str:
    if value is None:
        return "null"
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = BINARY
    return BINARY + b64encode(value).decode() if text.startswith(BINARY) else text
