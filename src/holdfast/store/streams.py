"""The streams part of a store."""

from __future__ import annotations

from typing import Protocol

from holdfast.store.allocations import AllocationStore
from holdfast.store.consumers import ConsumerStore
from holdfast.store.events import EventStore
from holdfast.store.foreign_events import ForeignEvents


class Streams(Protocol):
    """Events, consumers and shares, of one opened store."""

    @property
    def events(self) -> EventStore:
        """Append, read, trim."""
        ...

    @property
    def consumers(self) -> ConsumerStore:
        """Fetch, commit, park."""
        ...

    @property
    def allocations(self) -> AllocationStore:
        """Nodes, leadership, and which node owns which share."""
        ...

    @property
    def foreign(self) -> ForeignEvents:
        """Categories whose events another system keeps."""
        ...

    def join(self, using: object) -> EventStore:
        """Return the verbs for events bound to the caller's connection and its open transaction.

        Raises `ConfigError` if the connection is of an unknown type, outside a transaction or to another database.
        """
        ...
