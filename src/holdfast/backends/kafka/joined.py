"""The events of an app in the caller's own transaction: only the store can join it."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.backends.kafka.categories import KafkaCategories
from holdfast.backends.kafka.events import refuse
from holdfast.backends.kafka.over_store import OverStore
from holdfast.model.event import Appended, NewEvent
from holdfast.store.events import EventStore


class JoinedEvents(OverStore[EventStore]):
    """`EventStore` of the store, bound to the caller's transaction; refuses appends to categories in Kafka."""

    def __init__(self, store: EventStore, categories: KafkaCategories) -> None:
        super().__init__(store)
        self._categories = categories

    async def append(self, events: Sequence[NewEvent]) -> list[Appended]:
        """Append events to categories in the store; raises `Unsupported` if one of them is, or is to be, in Kafka."""
        for name in {event.category for event in events}:
            if not await self._categories.stays_in_store(name):
                refuse("join a transaction")
        return await self._store.append(events)
