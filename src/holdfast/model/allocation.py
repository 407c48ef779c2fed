"""Which node consumes which partition: the values and rules of allocation. Pure.

A consumer's claim on one partition of one category is a **share**. It has a state, an owner and a **generation**, the
number that fences it: it grows with each grant and each seizure, and every write of an owner carries it.

```text
            grant (leader, generation + 1)          revoke (leader, with a deadline)
   free ──────────────────────────────▶ granted ──────────────────────────▶ revoking
    ▲                                    │   ▲ commit (owner)                 │   ▲ commit (owner)
    │          release (owner)           │   └────                            │   └────
    ├────────────────────────────────────┘                                    │
    ├──────────────── release (owner, after its last commit) ──────────────────┤
    └──────────────── seize (leader, generation + 1) ──────────────────────────┘
                      from granted: the owner is silent or replaced; from revoking also: the deadline has passed
```

A share never passes directly from owner to owner: in between it is free, and its row holds the last committed position.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

import msgspec

from holdfast.errors import ConfigError
from holdfast.model.duration import to_span

_USUAL = 15.0  # seconds until a dead node's shares are taken over under the default timing, at most
_QUICKEST = 2.0
_Span = TypeVar("_Span", int, timedelta)


KEPT_TRANSITIONS = 1000
"""This many steps of shares, the last ones, are kept by every store."""

FORGET_NODES_AFTER = timedelta(days=1)
"""A node that was silent for longer and owns nothing is forgotten."""

SUSPECTED = 3
"""After this many losses of a share in a row, its next event is suspected of killing the nodes that handle it."""

MOST_TRIAL_LOSSES = 5
"""After more losses than that, an event on trial counts as failed for good."""

FRESH_PARTS = 2
"""A heartbeat no older than `ttl / FRESH_PARTS` is fresh; that long the leader must have seen none before it seizes."""


def losses_after(losses: int, *, is_on_trial: bool) -> int:
    """Return the losses of a share after one more loss at the same position.

    A node that dies loses all its shares, and only one of them can be at fault. So once a share is suspected, a loss
    counts only if its owner had recorded that it was handling the next event of this share.
    """
    return losses + (losses < SUSPECTED or is_on_trial)


def is_silent(since: _Span, ttl: _Span, grace: _Span) -> bool:
    """Return whether a node whose last heartbeat was `since` ago by the store's clock counts as silent.

    A heartbeat in the future was written before that clock was set back. If it lies further ahead than the time to
    live, it proves nothing and is ignored: a live node sends the next heartbeat within one heartbeat interval.
    """
    return not -ttl <= since <= ttl + grace


class ShareState(StrEnum):
    """The state of a share."""

    FREE = "free"
    GRANTED = "granted"
    REVOKING = "revoking"


class Share(msgspec.Struct, frozen=True, order=True):
    """One consumer's claim on one partition: the unit of allocation."""

    consumer: str
    category: str
    partition_id: int


class Grant(msgspec.Struct, frozen=True):
    """The right to consume a share; every write of the owner carries it, and the generation is its fence."""

    share: Share
    generation: int


class NodeKey(msgspec.Struct, frozen=True, order=True):
    """A node and its incarnation: a process that restarts under the same name is a new incarnation."""

    node_id: str
    incarnation: str


class Leadership(msgspec.Struct, frozen=True):
    """The right to allocate shares; a larger epoch in the store supersedes it."""

    node: NodeKey
    epoch: int


def can_lead(node: NodeKey, holder: NodeKey | None, *, left: int, lease: int) -> bool:
    """Return whether a node may take or extend leadership; `left` is what is left of the holder's lease.

    A lease with more than twice the requested length left counts as expired: the store's clock was set back.
    """
    return holder is None or holder == node or not 0 <= left <= 2 * lease


class Timing(msgspec.Struct, frozen=True):
    """How often a node sends heartbeats, and when it counts as dead.

    ```text
       last heartbeat sent
       │  heartbeats repeat   self_fence              ttl      ttl + grace
       ├──┬──┬── … ───────────────┼────────────────────┼────────────┼──▶
                                  the node stops       the node     the leader may
                                  handling events      is silent    seize its shares
    ```

    Durations are passed in seconds or as timedeltas and kept as timedeltas; other values raise `ConfigError`.
    `self_fence` is measured by the node's own monotonic clock, from the moment when it sent its last successful
    heartbeat. `ttl` and `grace` are measured by the store's clock. `heartbeat_every` must be well below
    `self_fence`, and `self_fence` below `ttl`.
    """

    heartbeat_every: timedelta = timedelta(seconds=1)
    self_fence: timedelta = timedelta(seconds=7)
    ttl: timedelta = timedelta(seconds=10)
    grace: timedelta = timedelta(seconds=2)
    leader_lease: timedelta = timedelta(seconds=6)
    allocate_every: timedelta = timedelta(seconds=1)
    settle: timedelta = timedelta(seconds=3)  # the delay before shares move to a node that has joined
    drain: timedelta | None = timedelta(seconds=10)
    """How long an owner may continue with its current events after a share is revoked; None: without a limit."""

    if TYPE_CHECKING:  # the constructor accepts more types than the fields have

        def __init__(
            self,
            heartbeat_every: float | timedelta = ...,
            self_fence: float | timedelta = ...,
            ttl: float | timedelta = ...,
            grace: float | timedelta = ...,
            leader_lease: float | timedelta = ...,
            allocate_every: float | timedelta = ...,
            settle: float | timedelta = ...,
            drain: float | timedelta | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        """Convert every duration to a timedelta."""
        for name in self.__struct_fields__:
            if name != "drain" or self.drain is not None:
                msgspec.structs.force_setattr(self, name, to_span(getattr(self, name), name))

    @classmethod
    def for_recovery(cls, recovery: float | timedelta) -> Timing:
        """Return a timing under which a dead node's shares are taken over within `recovery` (at least 2 seconds)."""
        seconds = to_span(recovery, "recovery").total_seconds()
        if seconds < _QUICKEST:
            message = (
                f"recovery={seconds:g} s is too short: below {_QUICKEST:g} s a busy node looks dead and its partitions "
                f"move needlessly; pass {_QUICKEST:g} or more"
            )
            raise ConfigError(message)
        return cls().scaled(seconds / _USUAL)

    def scaled(self, factor: float) -> Timing:
        """Return this timing with every duration but `drain` multiplied by `factor`."""
        spans = {name: getattr(self, name) * factor for name in self.__struct_fields__ if name != "drain"}
        return msgspec.structs.replace(self, **spans)


class SeizeReason(StrEnum):
    """Why a leader seizes a share."""

    SILENT = "silent"  # no heartbeat of the owner for ttl + grace, by the store's clock: see `is_silent`
    REPLACED = "replaced"  # another incarnation of the owner has joined, or the owner has left
    OVERDUE = "overdue"  # the share was revoked, and the deadline for its release has passed


class Move(msgspec.Struct, frozen=True, tag=True):
    """One planned state change of a share; `generation` is the generation in the survey that the plan is based on."""

    share: Share
    generation: int


class GrantTo(Move, frozen=True):
    """Grant a free share to a node."""

    node: NodeKey


class Revoke(Move, frozen=True):
    """Have the owner release a share within `drain` (None: no deadline); `target` is the planned next owner."""

    drain: timedelta | None
    target: str | None = None


class Seize(Move, frozen=True):
    """Take a share from an owner that is dead, replaced or overdue."""

    reason: SeizeReason
