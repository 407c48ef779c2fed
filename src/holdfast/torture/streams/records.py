"""The kinds of records in the history of streams, beside those of `holdfast.torture.events`.

A share is told by consumer, category and partition. `sent_us` of an answer is when the request had been sent.
"""

from __future__ import annotations

import msgspec

from holdfast.torture.event import HistoryRecord

# --- appends ----------------------------------------------------------------------------------------------------------


class AppendedAt(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where an event went, as the store has answered."""

    event: str
    category: str
    partition: int
    position: int
    version: int
    is_new: bool


class AppendCalled(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """Events are about to be appended, all or none, under ids of the caller's; a repeat has the same, and a new `call`.

    `using`: in a transaction of the caller's own.
    """

    call: str
    events: tuple[str, ...]
    using: bool = False


class AppendAnswered(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """The events are in."""

    call: str
    places: tuple[AppendedAt, ...]


class AppendRefused(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """This call has not written its events: an error that says so, or the caller's transaction was rolled back."""

    call: str
    error: str


class AppendUnknown(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """Nobody knows."""

    call: str
    error: str


# --- nodes ------------------------------------------------------------------------------------------------------------


class ShareEvent(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """What every record of one share has."""

    consumer: str
    category: str
    partition: int
    generation: int

    @property
    def share(self) -> tuple[str, str, int]:
        """The share."""
        return self.consumer, self.category, self.partition


class PositionCommitted(ShareEvent, frozen=True, kw_only=True, gc=False):
    """A node has asked to move a position, by itself or with an effect; `verdict` also says unknown or unavailable."""

    after: int
    position: int
    verdict: str
    sent_us: int
    effect: bool = False


class Handled(ShareEvent, frozen=True, kw_only=True, gc=False):
    """A handler without a transaction has done its part for an event."""

    position: int
    event: str
    node: str


class Joined(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """This process takes part as a node. Those under a supervisor go by its name and a number of their own."""

    node: str


class Led(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """A node was told that it leads; written when it is new to it."""

    node: str
    incarnation: str
    epoch: int
    sent_us: int


class LeaderWrote(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """Moves that a leader asked for took effect, so many of them."""

    epoch: int
    moves: int
    sent_us: int


# --- what the conductor sees ------------------------------------------------------------------------------------------


class TransitionSeen(ShareEvent, frozen=True, kw_only=True, gc=False):
    """A step of an allocation, as the store has noted it; `number` grows with each, `store_us` is its instant."""

    number: int
    epoch: int
    old_state: str
    new_state: str
    node: str = ""


class ShareObserved(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A share at a look. `effect` is the greatest position among its effects, 0 if there are none."""

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
    """All shares and the epoch, read in one snapshot between `sent_us` and `at_us`."""

    shares: tuple[ShareObserved, ...]
    epoch: int
    sent_us: int


class FaultsOver(HistoryRecord, frozen=True, kw_only=True, gc=False):
    """From here on nobody is hurt any more: every share must be owned within the bound."""


# --- the final dump ---------------------------------------------------------------------------------------------------


class EventRow(HistoryRecord, frozen=True, kw_only=True, gc=False):
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


class ShareRow(ShareEvent, frozen=True, kw_only=True, gc=False):
    """A share in the final dump, after all nodes have ended."""

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
    | EventRow
    | StreamEffectRow
    | ParkedRow
    | ShareRow
)
