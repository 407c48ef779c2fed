"""The port's verbs for consumers: subscribe, fetch, commit, park; and what people do to them."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, Protocol

from holdfast.model.allocation import Grant, Share
from holdfast.store.stream_values import (
    Commit,
    CommitVerdict,
    ConsumerView,
    Fetched,
    ParkedView,
    Start,
    Subscription,
)


class ConsumerStore(Protocol):
    """The life of a consumer's positions. Every method is one atomic step of the store, and safe to repeat.

    A position is the place of the last event that is done. For a subscription to a category or to the log it is the
    event's `position` in its partition; for a subscription to one stream it is its `version`.
    """

    async def subscribe(self, consumer: str, subscription: Subscription, start: Start) -> bool:
        """Make a consumer known; True if it is new.

        1. A consumer that is known keeps its positions; raises `ConfigError` if its subscription was another one.
        2. For every partition there is now, a free allocation is made at `start`. Those of categories made later begin
           at the beginning, whatever `start` was: their events are all newer than the subscription.
        """
        ...

    async def fetch(self, grant: Grant, *, after: int, limit: int, max_bytes: int = 16 * 1024 * 1024) -> Fetched:
        """Return the next events after a position, and how the grant stands.

        1. `position`, `state` and the parked streams are those of the allocation at the same instant as the events.
        2. A stale generation is answered with `is_lost` and no events.
        3. At most `limit` events and, past the first, `max_bytes` of payload.
        """
        ...

    async def commit(self, grant: Grant, commit: Commit) -> CommitVerdict:
        """Move the position forward, with what is to be parked, unparked or noted.

        1. DONE only if generation and `after` are those of the row, and its state is granted or revoking. A repeat of
           a commit that was written is DONE again: the row's position is `position` already, under this generation.
        2. LOST if the generation is stale, or the position is neither: nothing was written.
        3. UNPARKED if an event was to be parked because its stream has parked ones, and it has none any more (a
           person dropped them): nothing was written; fetch again and handle it.
        4. Inside a transaction that `begin` opened in this task or thread it joins that.
        """
        ...

    async def verify(self, grant: Grant) -> int | None:
        """Return the committed position of a grant, None for a stale one; waits for transactions in flight."""
        ...

    async def release(self, grant: Grant) -> bool:
        """Give a share up; False if the grant was stale."""
        ...

    def begin(self, grant: Grant, *, limit: timedelta) -> AbstractAsyncContextManager[StreamTransaction]:
        """Open a transaction for effect and position; leaving it normally commits, by an exception rolls back.

        1. Raises `LeaseLost` at once if the generation is stale.
        2. After `limit` it is rolled back and any use raises `TransactionExpired`.
        3. Calls of this backend's stores (jobs, events, consumers) from the same task while it is open join it.
        4. A commit whose outcome is unknown raises `OutcomeUnknown`; `verify` tells.
        """
        ...

    def begin_blocking(self, grant: Grant, *, limit: timedelta) -> AbstractContextManager[StreamTransaction]:
        """The same for a handler in a thread."""
        ...

    # --- what people do -----------------------------------------------------------------------------------------------

    async def consumers(self) -> list[ConsumerView]:
        """List consumers with each of their shares, at a constant cost per share: position, lag, owner, parked."""
        ...

    async def pause(self, consumer: str) -> bool:
        """Ask that nobody consumes: no share is granted, granted ones are revoked; False if it was paused.

        Raises `ConsumerNotFound`.
        """
        ...

    async def resume(self, consumer: str) -> bool:
        """Let it go on; False if it was not paused."""
        ...

    async def reset(self, consumer: str, to: Start) -> bool:
        """Set the positions of a paused consumer; its generations grow, so that whoever still works is refused.

        1. False, and nothing is done, while a share is held by a node that lives: wait until all are free.
        2. Raises `ConfigError` if it is not paused.
        3. Events up to the present heads are marked as replayed when they come again. What was parked past the new
           position is forgotten, for it comes again.
        """
        ...

    async def forget(self, consumer: str) -> bool:
        """Delete a paused consumer that no node holds a share of, with all its positions; False if one does."""
        ...

    async def parked(self, consumer: str, *, after: ParkedView | None = None, limit: int) -> list[ParkedView]:
        """List parked events, in order of partition and position."""
        ...

    async def retry_parked(self, consumer: str, stream: str | None = None) -> int:
        """Ask the owners to handle parked events again, in order; how many. `fetch` then hands them out."""
        ...

    async def drop_parked(self, consumer: str, *, stream: str | None = None, event_id: str | None = None) -> int:
        """Delete parked events: all, those of streams of this name, or one; how many.

        Later events of a stream flow again when it has none left.
        """
        ...

    async def position_of(self, share: Share, at: datetime) -> int:
        """Return the position of a share after which events recorded at or after an instant begin."""
        ...


class StreamTransaction(Protocol):
    """A transaction of the store in which a consumer writes its effect."""

    @property
    def connection(self) -> Any:
        """What the handler writes through."""
        ...

    def commit(self, grant: Grant, commit: Commit) -> Any:
        """Write the fenced position as the last statement; a `CommitVerdict` (awaitable in an async transaction)."""
        ...
