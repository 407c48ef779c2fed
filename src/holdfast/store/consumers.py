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

    A grant is live while its generation is that of the allocation and this is granted or revoking; else it is stale.
    Verbs that name a consumer raise `ConsumerNotFound` if there is none.
    """

    async def subscribe(self, consumer: str, subscription: Subscription, start: Start) -> bool:
        """Make a consumer known; True if it is new.

        1. A consumer that is known keeps its positions; raises `ConfigError` if its subscription was another one.
        2. For every partition there is now, a free allocation is made at `start`. Those of categories made later begin
           at the beginning, whatever `start` was: their events are all newer than the subscription. The category need
           not exist, and is not made.
        3. A subscription to one stream has one share, that of the partition in which the stream lies.
        4. A start behind the head counts as the head.
        5. A consumer that was forgotten may subscribe again; its generations begin above the largest that it ever had,
           so that a grant of its former life stays stale, and a move that was planned on it too.
        """
        ...

    async def fetch(self, grant: Grant, *, after: int, limit: int, max_bytes: int = 16 * 1024 * 1024) -> Fetched:
        """Return the next events after a position, and how the grant stands.

        1. `position`, `state` and the parked streams are those of the allocation at the same instant as the events.
        2. A stale grant is answered with `is_lost` and no events.
        3. At most `limit` events and, past the first, `max_bytes` of payload.
        4. `after` is where the caller has read to, which may lie before or behind the committed position.
        5. Events of parked streams come too: it is the caller who parks them. `parked_streams` names those among the
           streams of the events, and no other: the cost does not grow with what is parked. `retries` are the first
           `limit` parked events that a person asked to retry.
        """
        ...

    async def commit(self, grant: Grant, commit: Commit) -> CommitVerdict:
        """Move the position forward, with what is to be parked or unparked.

        1. DONE only if generation and `after` are those of the row, and its state is granted or revoking. A repeat of
           a commit that was written is DONE again: the row's position is `position` already, under this generation.
        2. LOST if the grant is stale, or the position is neither: nothing was written.
        3. UNPARKED if an event was to be parked because its stream has parked ones, and it has none any more (a
           person dropped them): nothing was written; fetch again and handle it. `unparks` go first, then `parks` in
           their order: one may wait behind another of the same commit.
        4. Inside a transaction that `begin` opened in this task or thread it joins that.
        5. An event that fails again when it is retried stays parked with its new failure and more attempts, and neither
           it nor those of its stream behind it are retried any more until a person asks again. To unpark what is not
           parked is nothing; nor is the failure of one that is not being retried, so that a repeat counts no attempt
           twice.
        6. An event that is parked to wait behind ones that are being retried is to be retried after them.
        7. A step forward, and the end of a retry (`unparks`), sets `losses` to 0.
        8. Until the next commit, or the end of the grant, the owner is trying an event if this one says so (`tries`).
        """
        ...

    async def verify(self, grant: Grant) -> int | None:
        """Return the committed position of a live grant, None for a stale one; waits for transactions in flight."""
        ...

    async def release(self, grant: Grant) -> bool:
        """Give a share up; False if the grant was stale. It is free, with its position, generation and `target`."""
        ...

    def begin(self, grant: Grant, *, limit: timedelta) -> AbstractAsyncContextManager[StreamTransaction]:
        """Open a transaction for effect and position; leaving it normally commits, by an exception rolls back.

        1. Raises `LeaseLost` at once if the grant is stale.
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
        """List consumers by name, each with its shares in order: position, lag, owner, parked.

        The cost of a share is constant.
        """
        ...

    async def pause(self, consumer: str) -> bool:
        """Ask that nobody consumes; False if it was paused.

        From now on no share is granted (`allot`). Those that are granted stay so until the leader, who sees it in the
        `survey`, revokes them.
        """
        ...

    async def resume(self, consumer: str) -> bool:
        """Let it go on; False if it was not paused."""
        ...

    async def reset(self, consumer: str, to: Start) -> bool:
        """Set the positions of a paused consumer; its generations grow, so that whoever still works is refused.

        1. False, and nothing is done, while a share is held by a node that lives (not silent past its ttl): wait until
           all are free. What others hold becomes free.
        2. Raises `ConfigError` if it is not paused.
        3. Events up to the present heads are marked as replayed when they come again. What was parked past the new
           position is forgotten, for it comes again. `losses` and `since` begin anew, and no share has a `target`.
        4. A position behind the head counts as the head.
        """
        ...

    async def forget(self, consumer: str) -> bool:
        """Delete a paused consumer with its positions and what it has parked.

        1. False, and nothing is done, while a share is held by a node that lives, as for `reset`.
        2. Raises `ConfigError` if it is not paused.
        """
        ...

    async def parked(self, consumer: str, *, after: ParkedView | None = None, limit: int) -> list[ParkedView]:
        """List parked events, in order of category, partition and position; those behind `after`."""
        ...

    async def retry_parked(self, consumer: str, stream: str | None = None) -> int:
        """Ask the owners to handle parked events again, in order; how many there are. `fetch` then hands them out.

        Those of all streams, or of streams of this name; asked before or not, each counts.
        """
        ...

    async def drop_parked(self, consumer: str, *, stream: str | None = None, event_id: str | None = None) -> int:
        """Delete parked events: all, those of streams of this name, or one (both given: both must fit); how many.

        Later events of a stream flow again when it has none left.
        """
        ...

    async def position_of(self, share: Share, at: datetime) -> int:
        """Return the position of a share after which events recorded at or after an instant begin, as `position_at`."""
        ...


class StreamTransaction(Protocol):
    """A transaction of the store in which a consumer writes its effect."""

    @property
    def connection(self) -> Any:
        """What the handler writes through."""
        ...

    def commit(self, grant: Grant, commit: Commit) -> Any:
        """Write the fenced position as the last statement; a `CommitVerdict` (awaitable in an async transaction).

        A store may commit effect and position with it, and raise here what leaving the transaction would have raised.
        """
        ...
