"""What the handler of a consumer may ask of its surroundings.

`ctx.transaction()` is the way to take effect once: what is written through its connection and the consumer's position
commit together, fenced by the generation of the grant. A handler that does not use it is given an event at least once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any

from holdfast.errors import ConfigError, LeaseLost, OutcomeUnknown, StoreError
from holdfast.model.allocation import Grant
from holdfast.runtime.failpoint import failpoint
from holdfast.runtime.signals import Signal
from holdfast.store.backend import Backend
from holdfast.store.consumers import ConsumerStore
from holdfast.store.stream_values import Commit, CommitVerdict


class StreamUnparked(Exception):  # noqa: N818
    """A person dropped the parked events of a stream while an event was to be parked behind them: read again."""


class Try:
    """One try to handle an event, as both faces of the context know it."""

    def __init__(self, backend: Backend, grant: Grant, commit: Commit, limit: timedelta) -> None:
        self.backend = backend
        self.grant = grant
        self.commit = commit
        self.limit = limit
        self.loop = asyncio.get_running_loop()
        self.lease_lost = Signal()
        self.is_committed = False
        self.is_committing = False
        """Whether the commit was sent, so that only the store knows what has become of it."""

    @property
    def consumers(self) -> ConsumerStore:
        """The store's verbs for consumers."""
        return self.backend.streams.consumers

    async def resolve(self, unknown: OutcomeUnknown) -> None:
        """Ask the store whether our commit happened, though no reply came; raise `unknown` unless that is certain."""
        try:
            position = await self.consumers.verify(self.grant)
        except StoreError as error:
            raise unknown from error
        if position != self.commit.position or position == self.commit.after:
            raise unknown

    async def find_out(self) -> None:
        """Ask the store what has become of a commit whose handler was cancelled, or ran out of time, under way."""
        if not self.is_committing or self.is_committed:
            return
        with contextlib.suppress(StoreError):  # then it is not known, and the position tells at the next fetch
            self.is_committed = await self.consumers.verify(self.grant) == self.commit.position != self.commit.after

    def require(self, verdict: CommitVerdict) -> None:
        """Raise unless the commit was written."""
        if verdict is CommitVerdict.LOST:
            self.lease_lost.set()
            share = self.grant.share
            message = (
                f"partition {share.partition_id} of {share.category} was taken from consumer {share.consumer} here "
                f"(generation {self.grant.generation} is stale): nothing was written, and its new owner goes on"
            )
            raise LeaseLost(message)
        if verdict is CommitVerdict.UNPARKED:
            raise StreamUnparked

    def refuse_second(self) -> None:
        """Refuse a transaction after a transaction, and one inside another."""
        if self.is_committed:
            message = "effect and position were committed already: one transaction for each event or batch"
            raise ConfigError(message)
        if self.backend.capabilities.joins_transactions and self.backend.transactions.is_inside():
            message = "a transaction is open here already: write through its connection, or use a savepoint"
            raise ConfigError(message)

    def refuse_in_loop(self) -> None:
        """Refuse a blocking call in the loop's own thread: it would stop every handler beside it."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            return
        if running is self.loop:
            message = "ctx.sync is for handlers in threads: in an `async def`, await ctx itself"
            raise ConfigError(message)


class EventContext:
    """One try to handle an event, or a batch of them, as its handler sees it."""

    def __init__(self, this: Try, attempt: int) -> None:
        self._this = this
        self.attempt = attempt
        """How often this event has been tried by this node, this time included."""

    @property
    def lease_lost(self) -> Signal:
        """Set when the share was taken from this node: stop, nothing you write in a transaction will be kept."""
        return self._this.lease_lost

    @property
    def is_committed(self) -> bool:
        """Whether effect and position have been committed in a transaction."""
        return self._this.is_committed

    @property
    def consumer(self) -> str:
        """The name of the consumer."""
        return self._this.grant.share.consumer

    @property
    def partition_id(self) -> int:
        """The partition that is consumed."""
        return self._this.grant.share.partition_id

    @property
    def fence(self) -> int:
        """The generation of the grant, which grows with each: hand it to outside systems that refuse a smaller one."""
        return self._this.grant.generation

    @property
    def sync(self) -> SyncEventContext:
        """The same for a handler in a thread."""
        return SyncEventContext(self._this)

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Any]:
        """Open a transaction of the store; leaving it commits effect and position together, an exception neither.

        Jobs enqueued and events appended inside join it. Raises `LeaseLost` when the share was taken away.
        """
        this = self._this
        this.refuse_second()
        try:
            async with this.consumers.begin(this.grant, limit=this.limit) as transaction:
                failpoint("before_effect")
                yield transaction.connection
                failpoint("after_effect")
                this.is_committing = True
                this.require(await transaction.commit(this.grant, this.commit))
            failpoint("after_commit")
        except OutcomeUnknown as unknown:
            await this.resolve(unknown)
        this.is_committed = True


class SyncEventContext:
    """`EventContext` with blocking calls, for handlers in threads."""

    def __init__(self, this: Try) -> None:
        self._this = this

    @contextmanager
    def transaction(self) -> Generator[Any]:
        """Open a transaction of the store, as `EventContext.transaction` does."""
        this = self._this
        this.refuse_in_loop()
        this.refuse_second()
        try:
            with this.consumers.begin_blocking(this.grant, limit=this.limit) as transaction:
                failpoint("before_effect")
                yield transaction.connection
                failpoint("after_effect")
                this.require(transaction.commit(this.grant, this.commit))
            failpoint("after_commit")
        except OutcomeUnknown as unknown:
            asyncio.run_coroutine_threadsafe(this.resolve(unknown), this.loop).result()
        this.is_committed = True
