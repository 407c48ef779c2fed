"""The context of a consumer's handler.

`ctx.transaction()` makes an effect happen once: what is written through its connection and the consumer's position
commit together, fenced by the generation of the grant. A handler without it receives an event at least once.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

from holdfast.runtime.signals import Signal
from holdfast.streams.effect import EventEffect


class EventContext:
    """One attempt to handle an event, or a batch of events, as its handler sees it."""

    def __init__(self, effect: EventEffect, attempt: int) -> None:
        self._effect = effect
        self.attempt = attempt
        """The number of this attempt at the event by this node, counted from 1."""

    @property
    def lease_lost(self) -> Signal:
        """Set when the share was taken from this node: stop, nothing that is written in a transaction will be kept."""
        return self._effect.lease_lost

    @property
    def is_committed(self) -> bool:
        """Whether effect and position have been committed in a transaction."""
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
        """The generation of the grant, which grows with each: pass it to external systems that refuse a smaller one."""
        return self._effect.grant.generation

    @property
    def sync(self) -> SyncEventContext:
        """The same for a handler in a thread."""
        return SyncEventContext(self._effect)

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """Open a transaction of the store; leaving it commits effect and position together, an exception neither.

        Jobs enqueued and events appended inside join it. Raises `LeaseLost` when the share was taken away.
        """
        return self._effect.transaction()


class SyncEventContext:
    """`EventContext` with blocking calls, for handlers in threads."""

    def __init__(self, effect: EventEffect) -> None:
        self._effect = effect

    def transaction(self) -> AbstractContextManager[Any]:
        """Open a transaction of the store, as `EventContext.transaction` does."""
        return self._effect.blocking_transaction()
