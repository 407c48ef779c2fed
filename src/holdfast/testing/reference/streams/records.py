"""The state of the reference model for streams."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.errors import CategoryNotFound, ConsumerNotFound
from holdfast.model.allocation import KEPT_TRANSITIONS, Grant, NodeKey, Share, ShareState, is_silent
from holdfast.model.event import StoredEvent, partition_of
from holdfast.model.instants import to_datetime
from holdfast.model.outcome import Failure
from holdfast.store.stream_values import NewNode, Subscription, Transition


@dataclass(slots=True)
class Partition:
    """The kept events of a partition; `head` and `trimmed` are positions."""

    events: list[StoredEvent] = field(default_factory=list[StoredEvent])
    head: int = 0
    trimmed: int = 0
    recorded_us: int = 0


@dataclass(slots=True)
class ReferenceCategory:
    """A category, with the version of each of its streams."""

    name: str
    partitions: list[Partition]
    versions: dict[str, int] = field(default_factory=dict[str, int])


@dataclass(slots=True)
class ConsumerRecord:
    """A consumer without its shares."""

    subscription: Subscription
    paused: bool = False


@dataclass(slots=True)
class ReferenceShare:
    """A share: generation and position in one row, because every write of an owner compares both."""

    share: Share
    position: int
    generation: int
    since_us: int
    state: ShareState = ShareState.FREE
    owner: NodeKey | None = None
    target: str | None = None
    deadline_us: int | None = None
    replay_until: int = 0
    losses: int = 0
    is_on_trial: bool = False


@dataclass(slots=True, frozen=True)
class Parked:
    """A parked event."""

    event: StoredEvent
    failure: Failure | None
    attempts: int
    is_retrying: bool
    parked_us: int


@dataclass(slots=True)
class NodeRecord:
    """A node at its last heartbeat."""

    joined: NewNode
    joined_us: int
    seen_us: int
    ttl_us: int
    is_draining: bool = False


class StreamState:
    """The complete state of a store with streams."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        self.categories: dict[str, ReferenceCategory] = {}
        self.known: dict[str, StoredEvent] = {}
        self.consumers: dict[str, ConsumerRecord] = {}
        self.rows: dict[Share, ReferenceShare] = {}
        self.floors: dict[str, int] = {}  # per forgotten consumer: the largest generation it ever had
        self.parked: dict[Share, dict[int, Parked]] = {}
        self.nodes: dict[str, NodeRecord] = {}
        self.epoch: int = 0
        self.holder: NodeKey | None = None
        self.lease_until_us = 0
        self.transitions: list[Transition] = []

    @property
    def now(self) -> int:
        """The store's clock, in microseconds."""
        return self.clock()

    def category(self, name: str) -> ReferenceCategory:
        """Return a category; raises `CategoryNotFound`."""
        if name not in self.categories:
            raise CategoryNotFound(f"no category {name}")
        return self.categories[name]

    def consumer(self, name: str) -> ConsumerRecord:
        """Return a consumer; raises `ConsumerNotFound`."""
        if name not in self.consumers:
            raise ConsumerNotFound(f"no consumer {name}")
        return self.consumers[name]

    # -- what a share reads

    def place(self, share: Share, event: StoredEvent) -> int:
        """Return an event's position for a share: its version if the subscription is to one stream."""
        return event.position if self.consumer(share.consumer).subscription.stream is None else event.version

    def readable(self, share: Share) -> list[StoredEvent]:
        """Return the kept events of a share, in order."""
        stream = self.consumer(share.consumer).subscription.stream
        events = self.category(share.category).partitions[share.partition_id].events
        return [event for event in events if stream in (None, event.stream)]

    def unread(self, share: Share, after: int) -> list[StoredEvent]:
        """Return the kept events of a share past a position."""
        return [event for event in self.readable(share) if self.place(share, event) > after]

    def head(self, share: Share) -> int:
        """Return the last position of a share."""
        stream = self.consumer(share.consumer).subscription.stream
        category = self.category(share.category)
        return category.partitions[share.partition_id].head if stream is None else category.versions.get(stream, 0)

    def expected_shares(self) -> list[Share]:
        """Return all shares that should exist, in order."""
        return sorted(
            Share(consumer, category.name, partition_id)
            for consumer, record in self.consumers.items()
            for category in self.categories.values()
            for partition_id in range(len(category.partitions))
            if wants(record.subscription, category, partition_id)
        )

    # -- owners

    def live(self, grant: Grant) -> ReferenceShare | None:
        """Return the share owned under exactly this generation, or None if the grant is stale."""
        row = self.rows.get(grant.share)
        if row is None or row.generation != grant.generation or row.state is ShareState.FREE:
            return None
        return row

    def is_registered(self, node: NodeKey) -> bool:
        """Whether a node is registered under this incarnation."""
        record = self.nodes.get(node.node_id)
        return record is not None and record.joined.node == node

    def is_silent(self, node: NodeKey, grace_us: int = 0) -> bool:
        """Whether a registered node sent no heartbeat for its ttl plus the grace."""
        record = self.nodes[node.node_id]
        return is_silent(self.now - record.seen_us, record.ttl_us, grace_us)

    def is_live(self, node: NodeKey) -> bool:
        """Whether a node is registered under this incarnation and not silent past its ttl."""
        return self.is_registered(node) and not self.is_silent(node)

    def step(self, row: ReferenceShare, state: ShareState, *, node: NodeKey | None, epoch: int = 0) -> None:
        """Move a share to another state and record the transition."""
        self.transitions.append(
            Transition(
                share=row.share,
                epoch=epoch,
                generation=row.generation,
                old_state=row.state,
                new_state=state,
                node_id=None if node is None else node.node_id,
                happened_at=to_datetime(self.now),
            )
        )
        del self.transitions[:-KEPT_TRANSITIONS]
        row.state = state
        row.since_us = self.now
        if state is ShareState.FREE:
            row.owner = row.deadline_us = None

    def free_share(self, row: ReferenceShare, *, epoch: int = 0) -> None:
        """Free an owned share under a larger generation."""
        row.generation += 1
        self.step(row, ShareState.FREE, node=row.owner, epoch=epoch)


def wants(subscription: Subscription, category: ReferenceCategory, partition_id: int) -> bool:
    """Whether a consumer with this subscription has a share of this partition."""
    if subscription.category not in {None, category.name}:
        return False
    stream = subscription.stream
    return stream is None or partition_of(stream, len(category.partitions)) == partition_id
