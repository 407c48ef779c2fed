"""The reference model for streams behind the port."""

# ruff: noqa: D102 - the port states the contract of every method here

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime, timedelta
from typing import NoReturn

from holdfast.errors import Unsupported
from holdfast.model.allocation import Grant, Leadership, Move, NodeKey, Share, Timing
from holdfast.model.event import Appended, NewEvent, StoredEvent
from holdfast.model.isolation import READ_COMMITTED, Isolation
from holdfast.store.consumers import StreamTransaction
from holdfast.store.events import EventStore
from holdfast.store.stream_values import (
    CategoryView,
    Commit,
    CommitVerdict,
    ConsumerView,
    Fetched,
    LeaderView,
    NewNode,
    NodeView,
    OwnedShares,
    ParkedView,
    Start,
    Subscription,
    Survey,
    Transition,
)
from holdfast.testing.reference.streams import views
from holdfast.testing.reference.streams.allocation import StreamReference

_NO_TRANSACTIONS = "the reference model is not a database; it has no place for an effect"


class ReferenceStreams:
    """`Streams` over the model."""

    def __init__(self, model: StreamReference) -> None:
        self.model = model
        self.events = ReferenceEvents(model)
        self.consumers = ReferenceConsumers(model)
        self.allocations = ReferenceAllocations(model)

    @property
    def foreign(self) -> NoReturn:
        raise Unsupported("the model keeps all events")

    def join(self, using: object) -> EventStore:
        _refuse(using)


class ReferenceEvents:
    """`EventStore` over the model."""

    def __init__(self, model: StreamReference) -> None:
        self._model = model

    async def open_category(self, name: str, partitions: int | None = None) -> CategoryView:
        return views.category(self._model.open_category(name, partitions))

    async def categories(self) -> list[CategoryView]:
        return [views.category(record) for _, record in sorted(self._model.categories.items())]

    async def append(self, events: Sequence[NewEvent]) -> list[Appended]:
        return self._model.append(events)

    async def read(self, category: str, partition_id: int, *, after: int, limit: int) -> list[StoredEvent]:
        return self._model.read(category, partition_id, after=after, limit=limit)

    async def read_stream(
        self, category: str, stream: str, *, after: int | None = None, limit: int, backwards: bool = False
    ) -> list[StoredEvent]:
        return self._model.read_stream(category, stream, after=after, limit=limit, backwards=backwards)

    async def stream_version(self, category: str, stream: str) -> int:
        return self._model.stream_version(category, stream)

    async def position_at(self, category: str, partition_id: int, at: datetime) -> int:
        return self._model.position_at(category, partition_id, at)

    async def trim(self, category: str, *, older_than: timedelta, limit: int, past_unread: bool = False) -> int:
        return self._model.trim(category, older_than=older_than, limit=limit, past_unread=past_unread)


class ReferenceConsumers:
    """`ConsumerStore` over the model."""

    def __init__(self, model: StreamReference) -> None:
        self._model = model

    async def subscribe(self, consumer: str, subscription: Subscription, start: Start) -> bool:
        return self._model.subscribe(consumer, subscription, start)

    async def fetch(self, grant: Grant, *, after: int, limit: int, max_bytes: int = 16 * 1024 * 1024) -> Fetched:
        return self._model.fetch(grant, after=after, limit=limit, max_bytes=max_bytes)

    async def commit(self, grant: Grant, commit: Commit) -> CommitVerdict:
        return self._model.commit(grant, commit)

    async def verify(self, grant: Grant) -> int | None:
        return self._model.verify(grant)

    async def release(self, grant: Grant) -> bool:
        return self._model.release(grant)

    def begin(
        self, grant: Grant, *, limit: timedelta, isolation: Isolation = READ_COMMITTED
    ) -> AbstractAsyncContextManager[StreamTransaction]:
        _refuse(grant, limit, isolation)

    def begin_blocking(
        self, grant: Grant, *, limit: timedelta, isolation: Isolation = READ_COMMITTED
    ) -> AbstractContextManager[StreamTransaction]:
        _refuse(grant, limit, isolation)

    async def consumers(self) -> list[ConsumerView]:
        return views.consumers(self._model)

    async def pause(self, consumer: str) -> bool:
        return self._model.pause(consumer)

    async def resume(self, consumer: str) -> bool:
        return self._model.resume(consumer)

    async def reset(self, consumer: str, to: Start) -> bool:
        return self._model.reset(consumer, to)

    async def forget(self, consumer: str) -> bool:
        return self._model.forget(consumer)

    async def parked(self, consumer: str, *, after: ParkedView | None = None, limit: int) -> list[ParkedView]:
        everything = views.parked(self._model, consumer)
        if after is None:
            return everything[:limit]
        return [view for view in everything if (view.share, view.position) > (after.share, after.position)][:limit]

    async def retry_parked(self, consumer: str, stream: str | None = None) -> int:
        return self._model.retry_parked(consumer, stream)

    async def drop_parked(self, consumer: str, *, stream: str | None = None, event_id: str | None = None) -> int:
        return self._model.drop_parked(consumer, stream=stream, event_id=event_id)

    async def position_of(self, share: Share, at: datetime) -> int:
        return self._model.position_of(share, at)


class ReferenceAllocations:
    """`AllocationStore` over the model."""

    def __init__(self, model: StreamReference) -> None:
        self._model = model

    async def join(self, node: NewNode) -> None:
        self._model.join(node)

    async def heartbeat(self, node: NodeKey, timing: Timing) -> OwnedShares:
        return self._model.heartbeat(node, timing)

    async def owned(self, node: NodeKey) -> OwnedShares:
        return self._model.owned(node)

    async def leave(self, node: NodeKey, *, is_lost: bool = False) -> None:
        self._model.leave(node, is_lost=is_lost)

    async def drain(self, node: NodeKey) -> None:
        self._model.drain(node)

    async def lead(self, node: NodeKey, lease: timedelta) -> Leadership | None:
        return self._model.lead(node, lease)

    async def resign(self, leadership: Leadership) -> bool:
        return self._model.resign(leadership)

    async def survey(self) -> Survey:
        return views.survey(self._model)

    async def move_shares(
        self, leadership: Leadership, moves: Sequence[Move], *, grace: timedelta
    ) -> list[bool] | None:
        return self._model.move_shares(leadership, moves, grace=grace)

    async def complete_shares(self, leadership: Leadership) -> int | None:
        return self._model.complete_shares(leadership)

    async def leader(self) -> LeaderView | None:
        return views.leader(self._model)

    async def nodes(self) -> list[NodeView]:
        return views.nodes(self._model)

    async def transitions(self, *, limit: int) -> list[Transition]:
        return self._model.transitions[::-1][:limit]


def _refuse(*_: object) -> NoReturn:
    raise Unsupported(_NO_TRANSACTIONS)
