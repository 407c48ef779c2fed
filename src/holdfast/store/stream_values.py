"""The values that the verbs for streams take and return."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

import msgspec

from holdfast.model.allocation import Grant, Leadership, NodeKey, Share, ShareState, Timing
from holdfast.model.event import StoredEvent
from holdfast.model.outcome import Failure


class Category(NamedTuple):
    """A category, as stored."""

    category: str
    category_id: int
    partitions: int
    home: str | None = None
    """Where its events are, if another system keeps them."""


class CategoryView(msgspec.Struct, frozen=True):
    """A category: its partitions, and how many events were appended and are still kept."""

    name: str
    partitions: int
    heads: tuple[int, ...] = ()  # the last position of each partition
    trimmed: tuple[int, ...] = ()  # the last position of each partition that was trimmed

    @property
    def appended(self) -> int:
        """How many events were ever appended."""
        return sum(self.heads)

    @property
    def kept(self) -> int:
        """How many of them are still kept."""
        return sum(self.heads) - sum(self.trimmed)


class Subscription(msgspec.Struct, frozen=True):
    """What a consumer reads: a category, one stream of it, or (neither) the log: all categories, also future ones."""

    category: str | None = None
    stream: str | None = None

    def __str__(self) -> str:
        """Return a readable name."""
        if self.category is None:
            return "the log"
        return f"category {self.category}" if self.stream is None else f"stream {self.category}/{self.stream}"


class StartAt(StrEnum):
    """Where a consumer starts."""

    BEGINNING = "beginning"
    END = "end"


Start = StartAt | datetime | int
"""The beginning, the end, the first event at or after an instant, or after a position (in every partition).

For a subscription to one stream the number is a version.
"""


class KnownStart(NamedTuple):
    """A start whose positions are known for some partitions, (category, partition), because others keep their events.

    `otherwise` is the start in all other partitions.
    """

    positions: Mapping[tuple[str, int], int]
    otherwise: Start


class Park(msgspec.Struct, frozen=True):
    """An event to park. `failure` None: it did not fail, but must wait behind parked events of its stream."""

    position: int
    stream: str
    failure: Failure | None = None
    attempts: int = 0
    event: StoredEvent | None = None
    """The event itself: needed where another system keeps the events, and may delete it meanwhile."""


class Unpark(msgspec.Struct, frozen=True):
    """A parked event that was handled, or failed again (`failure`): then the event and its stream stay parked.

    `attempts` are those of this retry; they are added to the earlier ones.
    """

    position: int
    failure: Failure | None = None
    attempts: int = 0


class Commit(msgspec.Struct, frozen=True):
    """A step of a consumer from position `after` to `position`, with the events to park and to unpark.

    `position` may equal `after` if only parked events were handled, and is never smaller. The positions of events to
    park are above `after` and at most `position`. `begins_trial` says that the next event is about to be handled
    alone: if the share is lost before the next commit, that event is the suspect.
    """

    after: int
    position: int
    parks: tuple[Park, ...] = ()
    unparks: tuple[Unpark, ...] = ()
    begins_trial: bool = False

    @property
    def clears_losses(self) -> bool:
        """Whether an event was handled, so that earlier losses were not caused by the next event."""
        return self.position > self.after or bool(self.unparks)


class CommitVerdict(StrEnum):
    """The result of a commit."""

    DONE = "done"
    LOST = "lost"
    UNPARKED = "unparked"


class ParkedEvent(msgspec.Struct, frozen=True):
    """A parked event that an operator asked to retry."""

    event: StoredEvent
    attempts: int


class Fetched(msgspec.Struct, frozen=True):
    """The result of a fetch.

    `position` is the committed one, `head` the last position (of the partition, or of the stream for a subscription to
    one stream). `parked_streams` are the streams in `events` whose events must be parked, because earlier ones are.
    `retries` are parked events to handle again, in order, before other events of their streams. `replay_until`: events
    up to this position were handled before. `passed`: no event is left between the last one and this position, where an
    event log has holes; 0 if it has none.
    """

    events: list[StoredEvent]
    is_lost: bool = False
    state: ShareState = ShareState.GRANTED
    position: int = 0
    head: int = 0
    replay_until: int = 0
    losses: int = 0
    parked_streams: frozenset[str] = frozenset()
    retries: tuple[ParkedEvent, ...] = ()
    passed: int = 0


class ShareView(msgspec.Struct, frozen=True):
    """One share of a consumer. `behind` is the age of its oldest unhandled event, or None without one."""

    share: Share
    state: ShareState
    generation: int
    owner: str | None
    target: str | None
    position: int
    head: int
    behind: timedelta | None
    parked: int
    since: timedelta  # how long it has been in this state
    losses: int = 0

    @property
    def lag(self) -> int:
        """How many events are not handled yet."""
        return self.head - self.position


class ConsumerView(msgspec.Struct, frozen=True):
    """A consumer and its shares."""

    name: str
    subscription: Subscription
    paused: bool
    shares: tuple[ShareView, ...]

    @property
    def lag(self) -> int:
        """How many events are not handled yet."""
        return sum(share.lag for share in self.shares)

    @property
    def behind(self) -> timedelta | None:
        """The age of the oldest unhandled event."""
        return max((share.behind for share in self.shares if share.behind is not None), default=None)

    @property
    def parked(self) -> int:
        """How many events are parked."""
        return sum(share.parked for share in self.shares)


class ParkedView(msgspec.Struct, frozen=True):
    """A parked event. `failure` None: it did not fail, but waits behind another event of its stream."""

    share: Share
    position: int
    event_id: str
    stream: str
    failure: Failure | None
    attempts: int
    is_retrying: bool
    parked_at: datetime


class Member(msgspec.Struct, frozen=True):
    """A consumer that a node can run; a node gets shares in proportion to its capacity."""

    consumer: str
    capacity: int = 1


class NewNode(msgspec.Struct, frozen=True):
    """A node that joins."""

    node: NodeKey
    host: str
    pid: int
    members: tuple[Member, ...]
    timing: Timing
    is_fixed: bool = False
    """Whether its id was chosen: a process that restarts soon under it is to get its shares back."""


class OwnedShare(msgspec.Struct, frozen=True):
    """A share that a node owns, as stored."""

    grant: Grant
    state: ShareState
    drain_left: timedelta | None = None  # of a revoking one: how long until it may be seized, never below zero


class OwnedShares(msgspec.Struct, frozen=True):
    """The shares that a node owns: the answer to its heartbeat.

    `waited`: how long, at least, the heartbeat waited before it took effect, if the store knows it.
    """

    is_known: bool
    owned: tuple[OwnedShare, ...] = ()
    waited: timedelta = timedelta(0)


class NodeView(msgspec.Struct, frozen=True):
    """A node as of its last heartbeat; `silent` is the time since then, by the store's clock."""

    node: NodeKey
    host: str
    pid: int
    is_draining: bool
    silent: timedelta
    ttl: timedelta
    joined: timedelta  # how long ago this incarnation joined
    members: tuple[Member, ...] = ()
    shares: int = 0


class LeaderView(msgspec.Struct, frozen=True):
    """The leader with its epoch, and the time until its lease expires (negative: it has expired)."""

    leadership: Leadership
    expires_in: timedelta


class SurveyedShare(msgspec.Struct, frozen=True):
    """A share as input of the allocator. `target` is the node that is to own it next."""

    share: Share
    state: ShareState
    generation: int
    owner: NodeKey | None = None
    target: str | None = None
    overdue: bool = False  # revoking, and its deadline has passed


class Transition(msgspec.Struct, frozen=True):
    """A transition of a share from one state to another.

    `generation` is the one after the transition; `node_id` is the previous owner or, for a grant, the new one. `epoch`
    is the leader's, or 0 if no leader was involved.
    """

    share: Share
    epoch: int
    generation: int
    old_state: ShareState
    new_state: ShareState
    node_id: str | None
    happened_at: datetime


class Survey(msgspec.Struct, frozen=True):
    """The input of the allocator, as of one instant of the store's clock."""

    nodes: tuple[NodeView, ...]
    shares: tuple[SurveyedShare, ...]
    paused: frozenset[str] = frozenset()
    is_complete: bool = True  # False: a consumer lacks a share, `complete_shares` adds it
