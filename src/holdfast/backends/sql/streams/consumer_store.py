"""The port's verbs for consumers, on a SQL store."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime, timedelta

from holdfast.backends.sql.streams import consumer_admin, consumers
from holdfast.model.allocation import Grant, Share
from holdfast.model.isolation import READ_COMMITTED, Isolation
from holdfast.store.consumers import StreamTransaction
from holdfast.store.fences import HandlersTransactions
from holdfast.store.steps import Runner, Steps
from holdfast.store.stream_values import Commit, CommitVerdict, ConsumerView, Fetched, ParkedView, Start, Subscription


class SqlConsumers:
    """`ConsumerStore` on a SQL store. `fetch` is the store's verb of that name; it runs in one look."""

    def __init__(
        self, runner: Runner, transactions: HandlersTransactions, fetch: Callable[..., Steps[Fetched]]
    ) -> None:
        self._runner = runner
        self._transactions = transactions
        self._fetch = fetch

    async def subscribe(self, consumer: str, subscription: Subscription, start: Start) -> bool:  # noqa: D102
        return await self._runner.write(lambda: consumers.subscribe(consumer, subscription, start))

    async def fetch(  # noqa: D102
        self, grant: Grant, *, after: int, limit: int, max_bytes: int = 16 * 1024 * 1024
    ) -> Fetched:
        return await self._runner.look(lambda: self._fetch(grant, after=after, limit=limit, max_bytes=max_bytes))

    async def commit(self, grant: Grant, commit: Commit) -> CommitVerdict:  # noqa: D102
        run = self._runner.write if commit.parks or commit.unparks else self._runner.once
        return await run(lambda: consumers.commit(grant, commit))

    async def verify(self, grant: Grant) -> int | None:  # noqa: D102
        return await self._runner.once(lambda: consumers.verify(grant))

    async def release(self, grant: Grant) -> bool:  # noqa: D102
        return await self._runner.write(lambda: consumers.release(grant))

    def begin(  # noqa: D102
        self, grant: Grant, *, limit: timedelta, isolation: Isolation = READ_COMMITTED
    ) -> AbstractAsyncContextManager[StreamTransaction]:
        return self._transactions.begin(grant, limit=limit, isolation=isolation)

    def begin_blocking(  # noqa: D102
        self, grant: Grant, *, limit: timedelta, isolation: Isolation = READ_COMMITTED
    ) -> AbstractContextManager[StreamTransaction]:
        return self._transactions.begin_blocking(grant, limit=limit, isolation=isolation)

    async def consumers(self) -> list[ConsumerView]:  # noqa: D102
        return await self._runner.look(consumer_admin.consumers)

    async def pause(self, consumer: str) -> bool:  # noqa: D102
        return await self._runner.write(lambda: consumer_admin.pause(consumer))

    async def resume(self, consumer: str) -> bool:  # noqa: D102
        return await self._runner.write(lambda: consumer_admin.resume(consumer))

    async def reset(self, consumer: str, to: Start) -> bool:  # noqa: D102
        return await self._runner.write(lambda: consumer_admin.reset(consumer, to))

    async def forget(self, consumer: str) -> bool:  # noqa: D102
        return await self._runner.write(lambda: consumer_admin.forget(consumer))

    async def parked(  # noqa: D102
        self, consumer: str, *, after: ParkedView | None = None, limit: int
    ) -> list[ParkedView]:
        return await self._runner.look(lambda: consumer_admin.parked(consumer, after, limit))

    async def retry_parked(self, consumer: str, stream: str | None = None) -> int:  # noqa: D102
        return await self._runner.write(lambda: consumer_admin.retry_parked(consumer, stream))

    async def drop_parked(  # noqa: D102
        self, consumer: str, *, stream: str | None = None, event_id: str | None = None
    ) -> int:
        return await self._runner.write(lambda: consumer_admin.drop_parked(consumer, stream, event_id))

    async def position_of(self, share: Share, at: datetime) -> int:  # noqa: D102
        return await self._runner.look(lambda: consumer_admin.position_of(share, at))
