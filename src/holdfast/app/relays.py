"""Relays: categories of the store that are copied to Kafka, once and in order (the transactional outbox).

A relay is a consumer named `relay:<category>`: its partitions are allocated to the nodes, and it is listed, paused and
reset as any other. Its handler sends the events; `holdfast.store.relays` says why none is sent twice.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.errors import ConfigError, LeaseLost, StoreUnavailable
from holdfast.model.allocation import Grant, Share
from holdfast.model.event import StoredEvent
from holdfast.model.names import check_name
from holdfast.store.capabilities import STREAMS
from holdfast.store.relays import EventRelay, SentUpTo
from holdfast.store.stream_values import Category
from holdfast.streams.consumer import make_consumer
from holdfast.streams.context import EventContext
from holdfast.streams.event import Event

if TYPE_CHECKING:
    from holdfast.app.app import App

_logger = logging.getLogger("holdfast.streams")
_PREFIX: Final = "relay:"


class Relays:
    """The relays of an app, by the names of their consumers."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._by_name: dict[str, CategoryRelay] = {}
        self.categories: set[str] = set()
        """The categories that are relayed: they stay in the store, also where others have their events in Kafka."""

    def relay(
        self,
        category: str,
        *,
        topic: str,
        to: str | None = None,
        batch: int = 500,
        poll_interval: float | timedelta = 1.0,
    ) -> None:
        """Copy the events of a category in the store to a topic of Kafka, once and in order for `read_committed`.

        `to` is the URL of Kafka; by default it is the app's `events`. The topic has as many partitions as the category;
        one that does not exist is created. At most `batch` events are sent in one transaction of Kafka. The consumer
        `relay:<category>` does it, on the nodes that run the app's consumers.
        """
        name = f"{_PREFIX}{check_name('category', category)}"
        self._app.backend.capabilities.require(STREAMS)
        if not self._app.backend.capabilities.joins_transactions:
            raise ConfigError(f"{self._app.backend.url} is no SQL store: a relay copies a category of one to Kafka")
        url = to or self._app.events_url or os.environ.get("HOLDFAST_EVENTS_URL")
        if not url:
            raise ConfigError(f'the relay of {category!r} needs the URL of Kafka: app.relay(…, to="kafka://…")')
        target: EventRelay = importlib.import_module("holdfast.backends.kafka").open_relay(url, topic)
        relay = CategoryRelay(self._app, category, target)
        consumer = make_consumer(
            name, relay.send, category=category, batch=batch, commit_every=batch, poll_interval=poll_interval
        )
        self._app.subscribed.add(msgspec.structs.replace(consumer, prepare=relay.prepare, ended=target.end))
        self._by_name[name] = relay
        self.categories.add(category)

    def find(self, consumer: str) -> CategoryRelay | None:
        """Return the relay of a consumer, None for another consumer; raises `ConfigError` if its app is needed."""
        if consumer.startswith(_PREFIX) and consumer not in self._by_name:
            raise ConfigError(
                f"{consumer} is a relay, and Kafka keeps what it has sent: name the app that defines it, which knows "
                f"where that is: holdfast consumer reset {consumer} --app module:app"
            )
        return self._by_name.get(consumer)

    async def close(self) -> None:
        """End the clients of this process."""
        for relay in self._by_name.values():
            await relay.target.close()


class CategoryRelay:
    """The relay of one category."""

    def __init__(self, app: App, category: str, target: EventRelay) -> None:
        self._app = app
        self._category = category
        self.target = target
        self._is_checked = False

    async def prepare(self) -> None:
        """Create category and topic where they are missing; raises `ConfigError` if the one cannot go to the other.

        If no broker answers, the node begins all the same; the relay does this before it sends its first event.
        """
        try:
            await self._check()
        except StoreUnavailable as error:
            _logger.warning("the relay of category %r waits for Kafka: %s", self._category, error)

    async def _check(self) -> None:
        streams = (await self._app.opened()).streams
        known = await self._known()
        if known is None:
            await streams.events.open_category(self._category, await self.target.partitions())
            known = await self._known()
        if known is not None:
            await self.target.check(known, await streams.foreign.all())
            self._is_checked = True

    async def _known(self) -> Category | None:
        """Return the category, or None if it does not exist yet."""
        for known in await (await self._app.opened()).streams.foreign.find([self._category]):
            if known.home is not None:
                raise ConfigError(
                    f"category {self._category!r} is in {known.home} already, and a relay copies a category of the "
                    "store: choose another name for one of the two"
                )
            return known
        return None

    async def send(self, events: list[Event], ctx: EventContext) -> None:
        """Send the events that were not sent yet; the consumer commits its position afterwards."""
        if not self._is_checked:
            await self._check()
        place = (ctx.partition_id, ctx.fence)
        batch = [event.as_stored() for event in events]
        sent = await self.target.begin(*place)
        await self._check_owner(ctx)
        if batch[0].position <= sent.position:
            await self._compare(ctx.partition_id, sent)
        left = unsent(batch, sent)
        if left:
            await self.target.send(*place, left)

    async def _check_owner(self, ctx: EventContext) -> None:
        """Raise `LeaseLost` if the share was taken before `begin`; who takes it later, or resets it, fences the sender.

        A node that was frozen until after a reset would otherwise send from where it was, and what is to be sent again
        up to there would be dropped.
        """
        grant = Grant(Share(ctx.consumer, self._category, ctx.partition_id), ctx.fence)
        if await (await self._app.opened()).streams.consumers.verify(grant) is None:
            raise LeaseLost(f"partition {ctx.partition_id} of {self._category} was taken from this node")

    async def _compare(self, partition_id: int, sent: SentUpTo) -> None:
        """Raise `ConfigError` if Kafka has another event at the last position: dropping would lose events."""
        events = (await self._app.opened()).streams.events
        found = await events.read(self._category, partition_id, after=sent.position - 1, limit=1)
        if not found or (found[0].position, found[0].id) != sent:
            raise ConfigError(
                f"Kafka has event {sent.event_id} as position {sent.position} of partition {partition_id} of category "
                f"{self._category!r}, and this store has another one there, or none: was it restored from a backup, or "
                "do two stores relay to one topic? Nothing is sent until you choose where to continue: holdfast "
                f"consumer reset {_PREFIX}{self._category} --to POSITION"
            )

    async def begin_again(self) -> None:
        """Forget what was sent, after the positions of the consumer were set; raises if Kafka does not answer."""
        known = await self._known()
        if known is not None:
            await self.target.begin_again(known.partitions)


def unsent(batch: Sequence[StoredEvent], sent: SentUpTo) -> list[StoredEvent]:
    """Return the events after the last one that was sent."""
    return [event for event in batch if event.position > sent.position]


def refuse_relay_name(name: object) -> None:
    """Raise `ConfigError` if a consumer is named like a relay."""
    if isinstance(name, str) and name.startswith(_PREFIX):
        raise ConfigError(f"consumer {name!r}: names that begin with {_PREFIX!r} are those of app.relay(…)")


__all__ = ["CategoryRelay", "Relays", "refuse_relay_name", "unsent"]
