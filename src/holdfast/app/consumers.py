"""Operator actions on consumers; the command line calls the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import UUID

from holdfast.app.admin import check_limit
from holdfast.app.relays import CategoryRelay
from holdfast.app.sync import Blocking, Sync
from holdfast.errors import ConsumerNotFound, HoldfastError
from holdfast.model.duration import to_span
from holdfast.model.ids import id_text, is_id
from holdfast.model.names import check_name
from holdfast.store.consumers import ConsumerStore
from holdfast.store.stream_values import ConsumerView, ParkedView, Start, StartAt
from holdfast.streams.consumer import check_start

if TYPE_CHECKING:
    from holdfast.app.app import App

T = TypeVar("T")
_RESET_INTERVAL: Final = 0.1  # seconds between two attempts while nodes still hold shares


class ConsumerDesk:
    """`app.consumers`: inspect, pause, reset and delete consumers; retry and drop parked events."""

    def __init__(self, app: App) -> None:
        self._app = app

    @property
    def sync(self) -> SyncConsumers:
        """The same with blocking calls."""
        return SyncConsumers(self, self._app.portal)

    async def _store(self) -> ConsumerStore:
        return (await self._app.opened(install=False)).streams.consumers

    async def list(self) -> Sequence[ConsumerView]:
        """List consumers, with the position, lag and owner of each share."""
        return await (await self._store()).consumers()

    async def show(self, consumer: str) -> ConsumerView:
        """Return one consumer; raises `ConsumerNotFound`."""
        for view in await self.list():
            if view.name == consumer:
                return view
        raise ConsumerNotFound(f"no consumer {consumer!r} has ever subscribed")

    async def pause(self, consumer: str) -> bool:
        """Stop consumption once the events in flight are handled; False if it was paused already."""
        return await self._changed((await self._store()).pause(check_name("consumer", consumer)))

    async def resume(self, consumer: str) -> bool:
        """Resume consumption; False if it was not paused."""
        return await self._changed((await self._store()).resume(check_name("consumer", consumer)))

    async def reset(
        self, consumer: str, to: StartAt | datetime | int | str, *, within: float | timedelta = 30.0
    ) -> None:
        """Set the positions of a consumer: "beginning", "end", a time, or a position in every partition.

        Safe while it runs: it is paused until its nodes have released their shares, and resumed afterwards unless it
        was paused before. If they do not release them `within` so many seconds, raises `TimeoutError`, and the consumer
        continues unchanged.
        """
        start = check_start(to)
        relay = self._app.relays.find(consumer)
        was_running = await self.pause(consumer)
        try:
            await self._reset_when_free(consumer, start, to_span(within, "within").total_seconds())
        except BaseException:
            if was_running:
                await self.resume(consumer)
            raise
        if relay is not None:
            await self._forget_sent(consumer, relay)
        if was_running:
            await self.resume(consumer)

    async def _reset_when_free(self, consumer: str, start: Start, limit: float) -> None:
        store = await self._store()
        try:
            async with asyncio.timeout(limit):
                while not await store.reset(consumer, start):  # noqa: ASYNC110 - another process frees it
                    await asyncio.sleep(_RESET_INTERVAL)
        except TimeoutError:
            message = (
                f"consumer {consumer!r} is still held by a node after {limit:g} s, so it was not reset: "
                "`holdfast consumer list --partitions` shows the node; `within` sets the timeout"
            )
            raise TimeoutError(message) from None

    async def _forget_sent(self, consumer: str, relay: CategoryRelay) -> None:
        """Have Kafka forget what a relay has sent; without that it would drop what is to be sent again."""
        try:
            await relay.begin_again()
        except HoldfastError as error:
            raise type(error)(
                f"{error}. The positions of {consumer} are set, but Kafka still knows what it has sent, so it stays "
                "paused: repeat the reset, then resume it"
            ) from error

    async def forget(self, consumer: str) -> bool:
        """Delete a paused consumer with its positions; False while a node holds one of its shares."""
        return await (await self._store()).forget(check_name("consumer", consumer))

    async def parked(self, consumer: str, *, after: ParkedView | None = None, limit: int = 100) -> Sequence[ParkedView]:
        """List parked events in order."""
        return await (await self._store()).parked(consumer, after=after, limit=check_limit(limit))

    async def retry_parked(self, consumer: str, stream: str | None = None) -> int:
        """Have parked events handled again in order; return their number."""
        return await self._changed((await self._store()).retry_parked(consumer, stream))

    async def drop_parked(self, consumer: str, *, stream: str | None = None, event_id: str | UUID | None = None) -> int:
        """Delete parked events: all, those of a stream, or one; return their number."""
        one = None if event_id is None else id_text(event_id)
        if one is not None and not is_id(one):
            return 0
        return await self._changed((await self._store()).drop_parked(consumer, stream=stream, event_id=one))

    async def _changed(self, change: Awaitable[T]) -> T:
        """Carry out a change and notify nodes and leader, which would otherwise see it at their next poll."""
        outcome = await change
        (await self._app.opened(install=False)).notifier.notify()
        return outcome


class SyncConsumers(Sync[ConsumerDesk]):
    """`app.consumers.sync`."""

    list = Blocking(ConsumerDesk.list)
    show = Blocking(ConsumerDesk.show)
    pause = Blocking(ConsumerDesk.pause)
    resume = Blocking(ConsumerDesk.resume)
    reset = Blocking(ConsumerDesk.reset)
    forget = Blocking(ConsumerDesk.forget)
    parked = Blocking(ConsumerDesk.parked)
    retry_parked = Blocking(ConsumerDesk.retry_parked)
    drop_parked = Blocking(ConsumerDesk.drop_parked)
