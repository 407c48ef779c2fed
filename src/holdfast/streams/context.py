"""The context of a consumer's handler.

`ctx.transaction()` gives effect once: writes through its connection commit together with the consumer's position,
fenced by the generation of the grant. A handler that does not use it may receive an event more than once.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Generic

from holdfast.model.isolation import READ_COMMITTED, Isolation
from holdfast.runtime.signals import Signal
from holdfast.runtime.type_variables import Connection
from holdfast.streams.effect import EventEffect


class EventContext(Generic[Connection]):
    """One attempt to handle an event, or a batch of events, as its handler sees it.

    `EventContext[psycopg.AsyncConnection]` declares the type of the connection, as with `Context`.
    """

    def __init__(self, effect: EventEffect, attempt: int) -> None:
        self._effect = effect
        self.attempt = attempt
        """The number of this attempt at the event by this node, counted from 1."""

    @property
    def lease_lost(self) -> Signal:
        """Set when this node has lost the share: stop, since transactions can no longer commit."""
        return self._effect.lease_lost

    @property
    def is_committed(self) -> bool:
        """Whether effect and position were committed in a transaction."""
        return self._effect.is_committed

    @property
    def consumer(self) -> str:
        """The name of the consumer."""
        return self._effect.grant.share.consumer

    @property
    def partition_id(self) -> int:
        """The partition that is consumed."""
        return self._effect.grant.share.partition_id

    @property
    def fence(self) -> int:
        """The generation of the grant, which only grows: pass it to external systems that reject a smaller one.

        In Kafka without a store it begins again when another program sets the offsets of the group.
        """
        return self._effect.grant.generation

    @property
    def sync(self) -> SyncEventContext[Connection]:
        """The blocking version of this context, for a handler in a thread."""
        return SyncEventContext(self._effect)

    def transaction(self, *, isolation: Isolation = READ_COMMITTED) -> AbstractAsyncContextManager[Connection]:
        """Open a transaction of the store; leaving it commits effect and position together, an exception neither.

        Jobs enqueued and events appended inside join it. Raises `LeaseLost` if the share was lost, and
        `TransactionConflict` if the store rolled it back in favour of another one; the event is then handled again.
        """
        return self._effect.transaction(isolation)


class SyncEventContext(Generic[Connection]):
    """`EventContext` with blocking calls, for handlers in threads."""

    def __init__(self, effect: EventEffect) -> None:
        self._effect = effect

    def transaction(self, *, isolation: Isolation = READ_COMMITTED) -> AbstractContextManager[Connection]:
        """Open a transaction of the store, as `EventContext.transaction` does."""
        return self._effect.blocking_transaction(isolation)
