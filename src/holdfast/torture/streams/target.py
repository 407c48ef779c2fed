"""The tortured store as the conductor of streams sees it, with the driver alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, TypeGuard

import msgspec

from holdfast.torture.history import now_us
from holdfast.torture.streams.names import SHARES
from holdfast.torture.streams.records import (
    EventRow,
    ParkedRow,
    ShareObserved,
    ShareRow,
    SharesSeen,
    StreamEffectRow,
    TransitionSeen,
)
from holdfast.torture.target.base import Leftovers, Target
from holdfast.torture.target.sqlite import SqliteGround
from holdfast.torture.urls import store_of

WAITING, DONE, PARKED, UNOWNED = "waiting", "done", "parked", "unowned"
_TABLE = "stream_effect"


class StreamGround(Target, Protocol):
    """`Target`, and what streams need besides. `counts` are of events: done when every consumer has passed them."""

    def shares(self) -> SharesSeen:
        """Look at all shares, in one snapshot."""
        ...

    def transitions(self, after: int) -> list[TransitionSeen]:
        """Return the steps of allocations whose number is above `after`."""
        ...

    def dumped(self) -> Iterator[EventRow | StreamEffectRow | ParkedRow | ShareRow]:
        """Go over everything that is left of the run."""
        ...


class SqliteStreamGround(SqliteGround):
    """`StreamGround` over a file."""

    def prepare(self) -> None:
        """Make the table of effects, too."""
        super().prepare()
        with self._open() as connection:
            for step in ("drop", "create", "index"):
                connection.execute(self._say[f"{step}_{_TABLE}"])

    def _all(self, *names: str, **values: int) -> list[list[tuple[Any, ...]]]:
        with self._open() as connection:
            connection.execute("begin")
            return [connection.execute(self._say.with_names(name, **values)).fetchall() for name in names]

    def counts(self) -> Mapping[str, int]:
        """Count events."""
        return counted(*self._all("partitions_done", "count_parked", "count_shares", "count_owned"))

    def effects_seen(self, after: int) -> tuple[int, int]:
        """Look at the latest effects."""
        last, doubled = self._all("last_stream_effect", "doubled_stream_effects", after=after)
        return last[0][0], doubled[0][0]

    def shares(self) -> SharesSeen:
        """Look at all shares."""
        return shares_seen(now_us(), *self._all("shares_seen", "epoch_seen"))

    def transitions(self, after: int) -> list[TransitionSeen]:
        """Return the latest steps."""
        (rows,) = self._all("transitions_seen", after=after)
        return [transition(row) for row in rows]

    def dumped(self) -> Iterator[EventRow | StreamEffectRow | ParkedRow | ShareRow]:
        """Dump everything."""
        with self._open() as connection:
            connection.execute("begin")
            for name, make in DUMPS.items():
                yield from map(make, connection.execute(self._say[name]))

    def leftovers(self) -> Leftovers:
        """Look for shares that are still owned, too."""
        (owned,) = self._all("count_owned")
        return msgspec.structs.replace(super().leftovers(), leases=owned[0][0])


def stream_ground_of(url: str) -> StreamGround:
    """Return the ground under a URL; raises as `store_of` does."""
    if store_of(url) == "sqlite":
        return SqliteStreamGround(url)
    from holdfast.torture.streams.postgres_target import PostgresStreamGround

    return PostgresStreamGround(url)


def is_of_streams(ground: Target) -> TypeGuard[StreamGround]:
    """Tell whether a ground is that of a run of streams."""
    return hasattr(ground, "dumped")


# --- rows as both dialects select them --------------------------------------------------------------------------------


def counted(
    partitions: list[tuple[Any, ...]],
    parked: list[tuple[Any, ...]],
    shares: list[tuple[Any, ...]],
    owned: list[tuple[Any, ...]],
) -> dict[str, int]:
    """Return how many events there are, by what is still to be done with them."""
    head, done = sum(row[2] for row in partitions), sum(row[3] for row in partitions)
    if shares[0][0] < SHARES:  # not everybody has subscribed yet
        done = 0
    return {WAITING: head - done, DONE: done, PARKED: parked[0][0], UNOWNED: SHARES - owned[0][0]}


def shares_seen(sent_us: int, rows: list[tuple[Any, ...]], epoch: list[tuple[Any, ...]]) -> SharesSeen:
    """Return a look at all shares."""
    shares = tuple(ShareObserved(*row) for row in rows)
    return SharesSeen(at_us=now_us(), shares=shares, epoch=epoch[0][0], sent_us=sent_us)


def transition(row: tuple[Any, ...]) -> TransitionSeen:
    """Return a step of an allocation."""
    number, consumer, category, partition, epoch, generation, old_state, new_state, node, at = row
    return TransitionSeen(
        at_us=now_us(),
        store_us=at,
        number=number,
        consumer=consumer,
        category=category,
        partition=partition,
        epoch=epoch,
        generation=generation,
        old_state=old_state,
        new_state=new_state,
        node=node or "",
    )


def _event(row: tuple[Any, ...]) -> EventRow:
    event, category, partition, position, stream, version, name = row
    return EventRow(
        at_us=now_us(),
        event=event,
        category=category,
        partition=partition,
        position=position,
        stream=stream,
        version=version,
        name=name,
    )


def _effect(row: tuple[Any, ...]) -> StreamEffectRow:
    consumer, category, partition, generation, position, event, node, number = row
    return StreamEffectRow(
        at_us=now_us(),
        consumer=consumer,
        category=category,
        partition=partition,
        generation=generation,
        position=position,
        event=event,
        node=node,
        number=number,
    )


def _parked(row: tuple[Any, ...]) -> ParkedRow:
    consumer, category, partition, position, event, stream, failure = row
    return ParkedRow(
        at_us=now_us(),
        consumer=consumer,
        category=category,
        partition=partition,
        position=position,
        event=event,
        stream=stream,
        failure="" if failure is None else str(json.loads(failure).get("error_class", "?")),
    )


def _share(row: tuple[Any, ...]) -> ShareRow:
    consumer, category, partition, generation, state, position, head = row
    return ShareRow(
        at_us=now_us(),
        consumer=consumer,
        category=category,
        partition=partition,
        generation=generation,
        state=state,
        position=position,
        head=head,
    )


DUMPS = {"all_events": _event, "all_stream_effects": _effect, "all_parked": _parked, "all_shares": _share}
"""What is dumped, by statement, and what is made of a row."""
