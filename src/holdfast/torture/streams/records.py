"""The kinds of records in the history of streams, in addition to those of `holdfast.torture.events`.

A share is identified by consumer, category and partition. `sent_us` of a reply is when the request was sent.
"""

from __future__ import annotations

import msgspec

from holdfast.torture.event import HistoryRecord

# --- appends ----------------------------------------------------------------------------------------------------------


class AppendedAt(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The place of an appended event, as acknowledged."""

    event: str
    category: str
    partition: int
    position: int
    version: int
    is_new: bool


class AppendCalled(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """Events are about to be appended, all or none, under the caller's ids; a repeat has the same ids, a new `call`.

    `using`: in a transaction of the caller.
    """

    call: str
    events: tuple[str, ...]
    using: bool = False


class AppendAnswered(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """The events are appended."""

    call: str
    places: tuple[AppendedAt, ...]


class AppendRefused(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """This call certainly did not write its events: an error says so, or the caller's transaction was rolled back."""

    call: str
    error: str


class AppendUnknown(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """The outcome is unknown."""

    call: str
    error: str


# --- nodes ------------------------------------------------------------------------------------------------------------


class ShareEvent(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """The base of all records of one share."""

    consumer: str
    category: str
    partition: int
    generation: int

    @property
    def share(self) -> tuple[str, str, int]:
        """The share."""
        return self.consumer, self.category, self.partition


class PositionCommitted(ShareEvent, frozen=True, kw_only=True, gc=False):
    """A node moved a position, alone or with an effect; `verdict` may also be unknown or unavailable."""

    after: int
    position: int
    verdict: str
    sent_us: int
    effect: bool = False


class Handled(ShareEvent, frozen=True, kw_only=True, gc=False):
    """A handler without a transaction has handled an event."""

    position: int
    event: str
    node: str


class Joined(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """This process joined as a node. Nodes under a supervisor have its name and a number."""

    node: str


class Led(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """A node became leader; written when the epoch is new to it."""

    node: str
    incarnation: str
    epoch: int
    sent_us: int


class LeaderWrote(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """This number of a leader's moves took effect."""

    epoch: int
    moves: int
    sent_us: int


# --- snapshots of the conductor ------------------------------------------------------------------------------------


class TransitionSeen(ShareEvent, frozen=True, kw_only=True, gc=False):
    """A transition of a share, as the store recorded it; `number` grows with each, `store_us` is its time."""

    number: int
    epoch: int
    old_state: str
    new_state: str
    node: str = ""


class ShareObserved(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A share in a snapshot. `effect` is the greatest position among its effects, 0 if there are none."""

    consumer: str
    category: str
    partition: int
    state: str
    generation: int
    position: int
    effect: int

    @property
    def share(self) -> tuple[str, str, int]:
        """The share."""
        return self.consumer, self.category, self.partition


class SharesSeen(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """All shares and the epoch, read in one transaction between `sent_us` and `at_us`."""

    shares: tuple[ShareObserved, ...]
    epoch: int
    sent_us: int


class FaultsOver(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """No faults from here on: every share must have an owner within the bound."""


# --- the final dump ---------------------------------------------------------------------------------------------------


class DumpedEvent(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """An event in the final dump."""

    event: str
    category: str
    partition: int
    position: int
    stream: str
    version: int
    name: str


class StreamEffectRow(ShareEvent, frozen=True, kw_only=True, gc=False):
    """A row of the effect table, which has no unique constraint; `number` is its place in the order of writes."""

    position: int
    event: str
    node: str
    number: int


class ParkedRow(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """A parked event in the final dump; `failure` is empty for one that waits behind another, else its kind."""

    consumer: str
    category: str
    partition: int
    position: int
    event: str
    stream: str
    failure: str = ""


class DumpedShare(ShareEvent, frozen=True, kw_only=True, gc=False):
    """A share in the final dump, after all nodes have exited."""

    state: str
    position: int
    head: int


AnyStreamEvent = (
    AppendCalled
    | AppendAnswered
    | AppendRefused
    | AppendUnknown
    | PositionCommitted
    | Handled
    | Joined
    | Led
    | LeaderWrote
    | TransitionSeen
    | SharesSeen
    | FaultsOver
    | DumpedEvent
    | StreamEffectRow
    | ParkedRow
    | DumpedShare
)
