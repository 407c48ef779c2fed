"""The port's verbs for consumers: subscribe, fetch, commit, park; and those for operators."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, Protocol

from holdfast.model.allocation import Grant, Share
from holdfast.model.isolation import READ_COMMITTED, Isolation
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
    """Consumers and their positions. Every method is one atomic step, and safe to repeat.

    A position is that of the last event that the consumer has passed. For a subscription to a category or to the log it
    is the event's `position` in its partition; for a subscription to one stream it is the event's `version`.

    A grant is live while the share has its generation and is granted or revoking; otherwise it is stale. Verbs that
    name a consumer raise `ConsumerNotFound` if it does not exist.
    """

    async def subscribe(self, consumer: str, subscription: Subscription, start: Start) -> bool:
        """Register a consumer; True if it is new.

        1. A known consumer keeps its positions; raises `ConfigError` if its subscription was a different one.
        2. It gets a free share at `start` for every existing partition. Shares of categories that are created later
           start from the beginning, whatever `start` was: all their events are newer than the subscription. The
           category need not exist, and is not created.
        3. A subscription to one stream has one share: that of the stream's partition.
        4. A start past the head counts as the head.
        5. A forgotten consumer may subscribe again; its generations start above the largest that it ever had, so that
           earlier grants, and moves planned on them, stay stale.
        """
        ...

    async def fetch(self, grant: Grant, *, after: int, limit: int, max_bytes: int = 16 * 1024 * 1024) -> Fetched:
        """Return the next events after a position, and the state of the grant.

        1. `position`, `state` and the parked streams are those of the share at the same instant as the events.
        2. For a stale grant it returns `is_lost` and no events.
        3. At most `limit` events and, past the first, `max_bytes` of payload.
        4. `after` is the last position that the caller has read; it may be below or above the committed position.
        5. Events of parked streams are returned too: the caller parks them. `parked_streams` names only streams of the
           returned events: the cost does not grow with the number of parked events. `retries` are the first `limit`
           parked events that an operator asked to retry.
        """
        ...

    async def commit(self, grant: Grant, commit: Commit) -> CommitVerdict:
        """Move the position forward, and park and unpark events.

        1. DONE only if generation and `after` are those of the share, and its state is granted or revoking. A repeat of
           a commit that was written is DONE again: the position is already `position`, under this generation.
        2. LOST if the grant is stale, or the position is neither of the two: nothing was written.
        3. UNPARKED if an event was to be parked because its stream has parked events, but it no longer has any (an
           operator dropped them): nothing was written; fetch again and handle the event. `unparks` are applied first,
           then `parks` in their order: one may wait behind another of the same commit.
        4. Inside a transaction that `begin` opened in this task or thread, it joins that transaction.
        5. An event that fails again when it is retried stays parked with its new failure and more attempts; neither it
           nor later ones of its stream are retried until an operator asks again. Unparking an event that is not parked
           changes nothing, nor does the failure of an event that is not being retried: a repeat counts no attempt
           twice.
        6. An event that is parked behind events that are being retried is retried after them.
        7. A step forward, and the end of a retry (`unparks`), sets `losses` to 0.
        8. A commit also records whether the owner handles the next event alone (see `Commit`). That is valid until the
           next commit or the end of the grant.
        """
        ...

    async def verify(self, grant: Grant) -> int | None:
        """Return the committed position of a live grant, or None for a stale one; waits for transactions in flight."""
        ...

    async def release(self, grant: Grant) -> bool:
        """Release a share; False if the grant was stale. The share keeps its position, generation and `target`."""
        ...

    def begin(
        self, grant: Grant, *, limit: timedelta, isolation: Isolation = READ_COMMITTED
    ) -> AbstractAsyncContextManager[StreamTransaction]:
        """Open a transaction for effect and position; a normal exit commits, an exception rolls back.

        1. Raises `LeaseLost` at once if the grant is stale.
        2. After `limit` it is rolled back and any use raises `TransactionExpired`.
        3. Calls of this backend's stores (jobs, events, consumers) from the same task join it while it is open.
        4. A commit whose outcome is unknown raises `OutcomeUnknown`; `verify` returns what happened.
        5. Isolation and `TransactionConflict` as for jobs (`Transactions.begin`).
        """
        ...

    def begin_blocking(
        self, grant: Grant, *, limit: timedelta, isolation: Isolation = READ_COMMITTED
    ) -> AbstractContextManager[StreamTransaction]:
        """The same for a handler that runs in a thread."""
        ...

    # --- for operators ------------------------------------------------------------------------------------------------

    async def consumers(self) -> list[ConsumerView]:
        """List consumers by name, each with its shares in order: position, lag, owner, parked.

        The cost of a share is constant.
        """
        ...

    async def pause(self, consumer: str) -> bool:
        """Stop the granting of shares; False if it was paused.

        No share is granted from now on (`move_shares`). Granted shares stay granted until the leader, which sees the
        pause in the `survey`, revokes them.
        """
        ...

    async def resume(self, consumer: str) -> bool:
        """Allow shares to be granted again; False if it was not paused."""
        ...

    async def reset(self, consumer: str, to: Start) -> bool:
        """Set the positions of a paused consumer; its generations grow, so that a node that still runs it is refused.

        1. False, and nothing is done, while a live node (not silent past its ttl) owns a share: wait until all are
           free. Shares of other owners become free.
        2. Raises `ConfigError` if it is not paused.
        3. Events up to the current heads are marked as replayed when they are fetched again. Events parked past the new
           position are no longer parked, because they are fetched again. `losses` and `since` are reset, and `target`
           is cleared.
        4. A position past the head counts as the head.
        """
        ...

    async def forget(self, consumer: str) -> bool:
        """Delete a paused consumer with its positions and parked events.

        1. False, and nothing is done, while a live node owns a share, as for `reset`.
        2. Raises `ConfigError` if it is not paused.
        """
        ...

    async def parked(self, consumer: str, *, after: ParkedView | None = None, limit: int) -> list[ParkedView]:
        """List parked events, in order of category, partition and position; those after `after`."""
        ...

    async def retry_parked(self, consumer: str, stream: str | None = None) -> int:
        """Mark parked events to be handled again, in order; return how many. `fetch` returns them from then on.

        Those of all streams, or of streams with this name; each counts, whether it was already marked or not.
        """
        ...

    async def drop_parked(self, consumer: str, *, stream: str | None = None, event_id: str | None = None) -> int:
        """Delete parked events: all, those of streams with this name, or one; given both, both must match.

        Returns how many. Later events of a stream are handled again when it has no parked event left.
        """
        ...

    async def position_of(self, share: Share, at: datetime) -> int:
        """Return the position of a share after which events recorded at or after an instant begin, as `position_at`."""
        ...


class StreamTransaction(Protocol):
    """A transaction of the store in which a consumer writes its effect."""

    @property
    def connection(self) -> Any:
        """The connection through which the handler writes."""
        ...

    @property
    def concerns_children(self) -> bool:
        """Whether jobs with children have ended in it; after its commit, `JobStore.promote` decides on these."""
        ...

    def commit(self, grant: Grant, commit: Commit) -> Any:
        """Write the fenced position as the last statement; returns a `CommitVerdict` (awaitable if async).

        A store may commit effect and position with it, and then raises here what the exit would have raised.
        """
        ...
