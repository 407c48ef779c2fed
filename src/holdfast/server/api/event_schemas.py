"""How events, categories, consumers and nodes are written and shown."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from holdfast.model.allocation import ShareState
from holdfast.server.api.fields import Headers, Id, Json, Limit, Name, Request, no_json

Version = Annotated[int, Meta(ge=0, le=2**53 - 1)]
Place = Annotated[str, Meta(max_length=60_000, description="The cursor of the page before, a version or a position.")]


class NewEventRequest(Request, frozen=True):
    """An event to append; `id` makes it safe to repeat."""

    name: Name
    payload: Json = msgspec.field(default_factory=no_json)
    headers: Headers | None = None
    id: Id | None = None


class AppendRequest(Request, frozen=True):
    """Events to append to a stream, all or none; `expected_version` is the version that the stream must have."""

    events: Annotated[list[NewEventRequest], Meta(min_length=1, max_length=1000)]
    expected_version: Version | None = None


class AppendedEvent(msgspec.Struct, frozen=True):
    """Where an event was stored; `is_new` is False if its id was stored already."""

    id: str
    version: int
    partition_id: int
    position: int
    is_new: bool


class AppendedEvents(msgspec.Struct, frozen=True):
    """One place for each event, in order."""

    events: list[AppendedEvent]


class StreamQuery(Request, frozen=True):
    """Which events of a stream: those after a version; backwards, those before it."""

    after: Place | None = None
    backwards: bool = False
    limit: Limit = 100


class EventQuery(Request, frozen=True):
    """Which events: those after the cursor of the page before."""

    after: Place | None = None
    limit: Limit = 100


class ShownEvent(msgspec.Struct, frozen=True):
    """An event."""

    id: str
    category: str
    stream: str
    name: str
    version: int
    partition_id: int
    position: int
    recorded_at: datetime
    headers: dict[str, str]
    payload: Any


class EventList(msgspec.Struct, frozen=True):
    """Events in order; `cursor` leads to those after them, also to those that are appended later.

    `is_hidden`: payloads and headers are left out, because the caller lacks the scope for them.
    """

    events: list[ShownEvent]
    cursor: str
    is_hidden: bool


class ShownCategory(msgspec.Struct, frozen=True):
    """A category: `heads` are the last positions of its partitions, `trimmed` those up to which events were deleted."""

    name: str
    partitions: int
    heads: list[int]
    trimmed: list[int]


class CategoryList(msgspec.Struct, frozen=True):
    """All categories."""

    categories: list[ShownCategory]


class ConsumerShare(msgspec.Struct, frozen=True):
    """One partition of a consumer."""

    category: str
    partition_id: int
    state: ShareState
    generation: int
    owner: str | None
    target: str | None
    position: int
    head: int
    lag: int
    behind_seconds: float | None
    parked: int


class ShownConsumer(msgspec.Struct, frozen=True):
    """A consumer: what it reads, how far it is behind, and its partitions."""

    name: str
    category: str | None
    stream: str | None
    paused: bool
    lag: int
    behind_seconds: float | None
    parked: int
    shares: list[ConsumerShare]


class ConsumerList(msgspec.Struct, frozen=True):
    """All consumers that have ever subscribed."""

    consumers: list[ShownConsumer]


class ShownNode(msgspec.Struct, frozen=True):
    """A process that runs consumers, as of its last heartbeat."""

    node_id: str
    state: Literal["live", "draining", "silent"]
    host: str
    pid: int
    silent_seconds: float
    consumers: list[str]
    shares: int


class NodeList(msgspec.Struct, frozen=True):
    """All nodes; `leader` assigns partitions to them."""

    nodes: list[ShownNode]
    leader: str | None
