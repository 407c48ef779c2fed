"""Who consumes which partition: the words of allocation, pure.

A consumer's work on one partition of one category is an **allocation**. It has a state, an owner and a **generation**,
the number that fences it: it grows with each grant and each seizure, and every write of an owner carries it.

```text
            grant (leader, generation + 1)          revoke (leader, with a deadline)
   free ──────────────────────────────▶ granted ──────────────────────────▶ revoking
    ▲                                    │   ▲ commit (owner)                 │   ▲ commit (owner)
    │          give up (owner)           │   └────                            │   └────
    ├────────────────────────────────────┘                                    │
    ├──────────────── release (owner, after its last commit) ──────────────────┤
    └──────────────── seize (leader, generation + 1) ──────────────────────────┘
                      from granted too: owner silent, replaced or dead; from revoking also: deadline passed
```

There is no step from owner to owner: between two of them the row is free and holds the last committed position.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

import msgspec

from holdfast.errors import ConfigError
from holdfast.model.duration import to_span

_USUAL = 15.0  # seconds: how soon others take over from a dead node by the default timing, at the latest
_QUICKEST = 2.0
_Span = TypeVar("_Span", int, timedelta)


KEPT_TRANSITIONS = 1000
"""So many steps of shares, the last ones, are kept by every store."""

FORGET_NODES_AFTER = timedelta(days=1)
"""A node that was silent for longer and owns nothing is forgotten."""

SUSPECTED = 3
"""So many losses of a share in a row, and an event of it may be what takes its nodes down."""


def losses_after(losses: int, *, is_trying: bool) -> int:
    """Count one more loss of a share at the same position.

    A node that dies takes all its shares with it, and only one of them is to blame. So once a share is suspected it
    counts alone if its owner had said that it was trying the next event of this very share.
    """
    return losses + (losses < SUSPECTED or is_trying)


def is_silent(since: _Span, ttl: _Span, grace: _Span) -> bool:
    """Tell whether a node counts as silent whose last report was `since` ago by the store's clock.

    A report from the future was made before that clock was set back. One that lies further ahead than the time to live
    proves nothing, and is not waited for: whoever lives reports again within a beat.
    """
    return not -ttl <= since <= ttl + grace


class AllocationState(StrEnum):
    """Where an allocation stands."""

    FREE = "free"
    GRANTED = "granted"
    REVOKING = "revoking"


class Share(msgspec.Struct, frozen=True, order=True):
    """One consumer's work on one partition: what is allotted."""

    consumer: str
    category: str
    partition_id: int


class Grant(msgspec.Struct, frozen=True):
    """The right to consume a share, under which every write of its owner is made; the generation is its fence."""

    share: Share
    generation: int


class NodeKey(msgspec.Struct, frozen=True, order=True):
    """A node and its incarnation: a process that came back under its old name is another incarnation."""

    node_id: str
    incarnation: str


class Leadership(msgspec.Struct, frozen=True):
    """The right to allot, for as long as nobody holds a larger epoch."""

    node: NodeKey
    epoch: int


def can_lead(node: NodeKey, holder: NodeKey | None, *, left: int, lease: int) -> bool:
    """Return whether a node may take or extend leadership; `left` is what is left of the holder's lease.

    A lease with more than twice the requested length left counts as expired: the store's clock was set back.
    """
    return holder is None or holder == node or not 0 <= left <= 2 * lease


class Timing(msgspec.Struct, frozen=True):
    """How often a node reports and when it counts as gone; the first must be well below the last.

    Durations are given in seconds or as timedeltas, and kept as timedeltas; raises `ConfigError` for what is none.
    `self_fence`: a node that has not reported for so long, by its own monotonic clock, counted from the sending of its
    last report that succeeded, dispatches nothing more. It is smaller than `ttl`, after which (and `grace`, both by the
    store's clock) the leader may take its shares.
    """

    beat: timedelta = timedelta(seconds=1)
    self_fence: timedelta = timedelta(seconds=7)
    ttl: timedelta = timedelta(seconds=10)
    grace: timedelta = timedelta(seconds=2)
    leader_lease: timedelta = timedelta(seconds=6)
    allot_every: timedelta = timedelta(seconds=1)
    settle: timedelta = timedelta(seconds=3)  # after a node has joined, before shares move to it
    drain: timedelta | None = timedelta(seconds=10)
    """How long an owner may take to end what it handles when a share is revoked; None: as long as it needs."""

    if TYPE_CHECKING:  # what is taken is wider than what is kept

        def __init__(
            self,
            beat: float | timedelta = ...,
            self_fence: float | timedelta = ...,
            ttl: float | timedelta = ...,
            grace: float | timedelta = ...,
            leader_lease: float | timedelta = ...,
            allot_every: float | timedelta = ...,
            settle: float | timedelta = ...,
            drain: float | timedelta | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        """Make a timedelta of every duration."""
        for name in self.__struct_fields__:
            if name != "drain" or self.drain is not None:
                msgspec.structs.force_setattr(self, name, to_span(getattr(self, name), name))

    @classmethod
    def for_recovery(cls, recovery: float | timedelta) -> Timing:
        """Return a timing under which others take over from a dead node within so many seconds, 2 at least."""
        seconds = to_span(recovery, "recovery").total_seconds()
        if seconds < _QUICKEST:
            message = (
                f"a recovery within {seconds:g} s is too quick: below {_QUICKEST:g} s a busy machine looks like a "
                "dead one, and partitions would move for nothing"
            )
            raise ConfigError(message)
        return cls().scaled(seconds / _USUAL)

    def scaled(self, factor: float) -> Timing:
        """Return the same timing, faster (below 1) or slower: every duration but `drain` is multiplied."""
        spans = {name: getattr(self, name) * factor for name in self.__struct_fields__ if name != "drain"}
        return msgspec.structs.replace(self, **spans)


class SeizeReason(StrEnum):
    """Why a leader takes a share from its owner."""

    SILENT = "silent"  # the owner has not reported for ttl + grace, by the store's clock: see `is_silent`
    REPLACED = "replaced"  # another incarnation of the owner has joined, or the owner has left
    OVERDUE = "overdue"  # asked to release it, and the deadline has passed


class Move(msgspec.Struct, frozen=True, tag=True):
    """One step that the allocator wants, from the state that it saw: `generation` is the one seen."""

    share: Share
    generation: int


class GrantTo(Move, frozen=True):
    """Give a free share to a node."""

    node: NodeKey


class Revoke(Move, frozen=True):
    """Ask the owner to release a share within `drain` (None: without a deadline); `target` shall have it next."""

    drain: timedelta | None
    target: str | None = None


class Seize(Move, frozen=True):
    """Take a share from an owner that is gone or late."""

    reason: SeizeReason
