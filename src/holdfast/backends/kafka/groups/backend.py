"""Kafka alone: `App(streams="kafka://…")`. Events in topics, positions in groups, at least once, and no jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, cast

from holdfast.backends.kafka.buffers import BATCHES_AT_ONCE
from holdfast.backends.kafka.categories import KafkaCategories
from holdfast.backends.kafka.error_map import ClientHealth
from holdfast.backends.kafka.groups.allocations import GroupAllocations, GroupExtender
from holdfast.backends.kafka.groups.consumers import GroupConsumers
from holdfast.backends.kafka.groups.member import GroupMember
from holdfast.backends.kafka.groups.refusals import GROUP_REFUSALS, NeedsStore, refuse
from holdfast.backends.kafka.groups.shares import GroupShares
from holdfast.backends.kafka.groups.topics_known import GroupEvents, KnownTopics, Nowhere
from holdfast.backends.kafka.location import KafkaLocation
from holdfast.backends.kafka.producing import KafkaAppender
from holdfast.backends.kafka.settings_check import checked_location
from holdfast.backends.kafka.topics import KafkaTopics
from holdfast.concurrency.per_process import PerProcess
from holdfast.store.backend import Backend
from holdfast.store.capabilities import JOBS, Capabilities
from holdfast.store.events import EventStore
from holdfast.store.foreign_events import ForeignEvents
from holdfast.store.jobs import Extender
from holdfast.store.local_notifier import LocalNotifier
from holdfast.store.stream_values import NewNode

_DURABILITY: Final = "acknowledged by all in-sync replicas"


class GroupStreams:
    """`Streams`, and the clients behind it, of one process."""

    def __init__(self, location: KafkaLocation) -> None:
        health = ClientHealth(location.url)
        self._appender = KafkaAppender(location, health)
        self.notifier = notifier = LocalNotifier("kafka", None)
        self.topics = topics = KafkaTopics(location, health)
        self.foreign = cast("ForeignEvents", KnownTopics())
        self.categories = categories = KafkaCategories(location, topics, self.foreign, ())
        self.events = events = GroupEvents(
            location,
            health,
            categories,
            topics,
            self._appender,
            store=cast("EventStore", Nowhere()),
            foreign=self.foreign,
            is_inside=lambda: False,
            facts=_facts,
        )
        shares = GroupShares()
        members: dict[str, GroupMember] = {}
        self.consumers = consumers = GroupConsumers(location, topics, categories, events, shares, members)

        def make(node: NewNode, consumer: str) -> GroupMember:
            drain = node.timing.drain
            return GroupMember(
                location,
                health,
                topics,
                shares,
                consumer=consumer,
                category=consumers.subscriptions[consumer],
                node_id=node.node.node_id,
                is_fixed=node.is_fixed,
                drain=None if drain is None else drain.total_seconds(),
                changed=notifier.notify,
            )

        self.allocations = GroupAllocations(make, members, shares, topics, health)

    def join(self, using: object) -> EventStore:
        """Refuse: there is no transaction to join."""
        refuse("join a transaction")

    async def close(self) -> None:
        """Leave the groups, and end the clients."""
        await self.allocations.close()
        self._appender.close()
        self.notifier.close()


async def _facts() -> dict[str, str]:
    refuse("trim")  # the only verb that asks for the time of a store


class _NothingToInstall:
    """`Schema`: there are no tables."""

    async def open(self, *, install: bool = True) -> None:
        """Do nothing."""

    async def install(self, *, only_existing: bool = False) -> int:
        """Do nothing."""
        return 0

    async def check(self) -> None:
        """Do nothing."""

    def script(self) -> str:
        """Return no statements."""
        return ""


class GroupBackend:
    """`Backend`: streams alone."""

    def __init__(self, location: KafkaLocation, url: str) -> None:
        self.url = location.url
        self.full_url = url
        self.file: Path | None = None
        self.schema = _NothingToInstall()
        self.jobs = self.queues = self.schedules = self.insight = self.transactions = NeedsStore(JOBS)
        self._parts = PerProcess(lambda: GroupStreams(location))

    @property
    def capabilities(self) -> Capabilities:  # noqa: D102 - the port states the contracts
        return Capabilities(
            store="Kafka alone",
            version="known to the brokers",
            durability=_DURABILITY,
            notifies=True,
            joins_transactions=False,
            shared=True,
            batches_at_once=BATCHES_AT_ONCE,
            refusals=GROUP_REFUSALS,
        )

    @property
    def streams(self) -> GroupStreams:  # noqa: D102
        return self._parts.here

    @property
    def notifier(self) -> LocalNotifier:  # noqa: D102
        return self._parts.here.notifier

    async def open(self, *, install: bool = True) -> None:
        """Ask a broker for its topics: a wrong address or password is reported now."""
        await self._parts.here.topics.names()

    async def close(self) -> None:  # noqa: D102
        parts = self._parts.take()
        if parts is not None:
            await parts.close()

    def extender(self) -> Extender:  # noqa: D102
        return cast("Extender", GroupExtender(self._parts.here.allocations))

    def __repr__(self) -> str:
        """Show where it is."""
        return f"<GroupBackend {self.url}>"


def open_streams(url: str) -> Backend:
    """Return the backend of streams in Kafka alone, not yet opened; raises `ConfigError` for an invalid URL."""
    backend: Any = GroupBackend(checked_location(url, has_members=True), url)
    return cast("Backend", backend)
