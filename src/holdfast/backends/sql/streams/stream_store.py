"""`Streams` on a SQL store."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.store.allocations import AllocationStore
from holdfast.store.consumers import ConsumerStore
from holdfast.store.events import EventStore


class SqlStreams:
    """The stores of one process. `joined` returns the verbs for events bound to a caller's connection."""

    def __init__(
        self,
        events: EventStore,
        consumers: ConsumerStore,
        allocations: AllocationStore,
        joined: Callable[[object], EventStore],
    ) -> None:
        self.events = events
        self.consumers = consumers
        self.allocations = allocations
        self._joined = joined

    def join(self, using: object) -> EventStore:  # noqa: D102 - the port states the contracts
        return self._joined(using)
