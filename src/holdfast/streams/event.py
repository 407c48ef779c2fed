"""An event as its handler sees it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar

import msgspec

from holdfast.errors import PayloadError
from holdfast.model.event import StoredEvent
from holdfast.runtime.payload import decode_json, decoder_for

T = TypeVar("T")
_UNREAD: Any = msgspec.UNSET


class Event(msgspec.Struct, gc=False, eq=False):
    """An immutable record of something that happened to one entity, with its place in the stream and the partition.

    The garbage collector does not track events: batches of them outlive its young generations, which then made it look
    at the whole process again and again, for a fifth of the time that consuming takes.
    """

    _stored: StoredEvent
    is_replayed: bool = False
    """Whether the consumer had passed the event before its position was reset."""
    _payload: Any = _UNREAD

    @property
    def id(self) -> str:
        """The id that its producer gave it; it never changes."""
        return self._stored.id

    @property
    def category(self) -> str:
        """The category of its stream."""
        return self._stored.category

    @property
    def stream(self) -> str:
        """The stream: the entity that the event belongs to."""
        return self._stored.stream

    @property
    def name(self) -> str:
        """What happened."""
        return self._stored.name

    @property
    def version(self) -> int:
        """Its place in its stream, from 1."""
        return self._stored.version

    @property
    def partition_id(self) -> int:
        """The partition of its stream."""
        return self._stored.partition_id

    @property
    def position(self) -> int:
        """Its place in its partition, from 1."""
        return self._stored.position

    @property
    def headers(self) -> dict[str, str]:
        """Text values that accompany the payload."""
        return dict(self._stored.headers or {})

    @property
    def recorded_at(self) -> datetime:
        """When it was appended, by the store's clock."""
        return self._stored.recorded_at

    @property
    def payload(self) -> Any:
        """The payload, decoded from JSON once."""
        if self._payload is _UNREAD:
            try:
                self._payload = decode_json(self._stored.payload)
            except (msgspec.DecodeError, msgspec.ValidationError) as error:
                raise self._unreadable(Any, error) from error
        return self._payload

    @property
    def content(self) -> bytes:
        """The payload as bytes, not decoded: those of the record, if the event is in Kafka, or the text of the JSON."""
        return self._stored.content

    @property
    def payload_or_text(self) -> Any:
        """The payload, to be shown: its text, if it is not JSON; bytes that are no text in base64, after `~b64:`."""
        try:
            return self.payload
        except PayloadError:
            return self._stored.payload

    def decode(self, kind: type[T]) -> T:
        """Return the payload as a value of this type; raises `PayloadError` if it does not fit."""
        try:
            value: T = decoder_for(kind).decode(self._stored.payload)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise self._unreadable(kind, error) from error
        return value

    def as_stored(self) -> StoredEvent:
        """Return the event as the store keeps it, with its payload as JSON."""
        return self._stored

    def _unreadable(self, kind: Any, error: Exception) -> PayloadError:
        return PayloadError(f"the payload of {self!r} is not a {getattr(kind, '__name__', kind)}: {error}")

    def __repr__(self) -> str:
        """Show its name and place, never the payload."""
        place = f"{self.category}/{self.stream}@{self.version}"
        return f"<Event {self.name} ({place}, partition {self.partition_id}:{self.position})>"

    def __eq__(self, other: object) -> bool:
        """Compare by id."""
        return isinstance(other, Event) and other.id == self.id

    def __hash__(self) -> int:
        """Hash by id."""
        return hash(self.id)
