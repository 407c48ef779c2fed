"""Categories, consumers and nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.app.audit import AuditEntry
from holdfast.errors import ConsumerNotFound
from holdfast.reports.states import consumer_state, live_ids, node_state, owners_of
from holdfast.server.dashboard.read.records import pauses
from holdfast.store.stream_values import (
    CategoryView,
    ConsumerView,
    LeaderView,
    NodeView,
    ParkedView,
    ShareView,
    StartAt,
)

if TYPE_CHECKING:
    from holdfast.app.app import App

_PARKED: Final = 30
_OWNER_COLOURS: Final = 6


class ShareCell(msgspec.Struct, frozen=True):
    """A partition of a consumer in the grid; `colour` is that of its owner, None without one."""

    view: ShareView
    letter: str
    colour: int | None


class ConsumerGrid(msgspec.Struct, frozen=True):
    """A consumer, its state as one word, and its partitions."""

    view: ConsumerView
    state: str
    owners: tuple[str, ...]
    cells: tuple[ShareCell, ...]


class NodeLine(msgspec.Struct, frozen=True):
    """A node, its state as one word, and its colour in the grids."""

    view: NodeView
    state: str
    colour: int


class StreamsScreen(msgspec.Struct, frozen=True):
    """Everything about streams; `is_kept` is False if the store keeps none."""

    is_kept: bool
    categories: tuple[CategoryView, ...] = ()
    consumers: tuple[ConsumerGrid, ...] = ()
    nodes: tuple[NodeLine, ...] = ()
    leader: LeaderView | None = None
    pauses: Mapping[str, AuditEntry] = {}


async def read_streams(app: App) -> StreamsScreen:
    """Read categories, consumers, nodes and the leader."""
    if not app.backend.capabilities.has_streams:
        return StreamsScreen(is_kept=False)
    categories, consumers = await app.categories(), await app.consumers.list()
    nodes, leader = await app.nodes(), await app.leader()
    colours = _colours(nodes, consumers)
    live = live_ids(nodes)
    grids = tuple(
        ConsumerGrid(
            view,
            consumer_state(view, live),
            tuple(owners_of(view)),
            tuple(ShareCell(share, share.state[0].upper(), colours.get(share.owner or "")) for share in view.shares),
        )
        for view in sorted(consumers, key=lambda view: (-view.lag, view.name))
    )
    rows = tuple(NodeLine(view, node_state(view), colours[view.node.node_id]) for view in nodes)
    paused = await pauses(app, "consumer", (view.paused for view in consumers))
    return StreamsScreen(True, tuple(categories), grids, rows, leader, paused)


def _colours(nodes: Sequence[NodeView], consumers: Sequence[ConsumerView]) -> dict[str, int]:
    ids = {node.node.node_id for node in nodes}
    ids |= {owner for view in consumers for owner in owners_of(view)}
    return {node_id: place % _OWNER_COLOURS for place, node_id in enumerate(sorted(ids))}


class ConsumerScreen(msgspec.Struct, frozen=True):
    """One consumer with its parked events."""

    grid: ConsumerGrid
    parked: tuple[ParkedView, ...]
    is_cut: bool
    pause: AuditEntry | None


async def read_consumer(app: App, name: str) -> ConsumerScreen:
    """Read one consumer; raises `ConsumerNotFound`."""
    screen = await read_streams(app)
    grid = next((each for each in screen.consumers if each.view.name == name), None)
    if grid is None:
        raise ConsumerNotFound(f"no consumer {name!r} has ever subscribed")
    parked = await app.consumers.parked(name, limit=_PARKED + 1)
    return ConsumerScreen(grid, tuple(parked[:_PARKED]), len(parked) > _PARKED, screen.pauses.get(name))


class PositionChange(msgspec.Struct, frozen=True):
    """The position of a consumer in a partition, now and after a reset; `trimmed`: up to there no event is kept."""

    partition: str
    now: int
    then: int
    trimmed: int

    @property
    def again(self) -> int:
        """How many events it handles again."""
        return max(self.now - max(self.then, self.trimmed), 0)

    @property
    def skipped(self) -> int:
        """How many events it never handles."""
        return max(self.then - self.now, 0)


async def read_moves(app: App, name: str, to: StartAt) -> tuple[PositionChange, ...]:
    """Return what a reset would change, as of now: three statements. Raises `ConsumerNotFound`."""
    view = await app.consumers.show(name)
    trimmed: dict[tuple[str, int], int] = {}
    if view.subscription.stream is None:
        for category in await app.categories():
            trimmed |= {(category.name, place): position for place, position in enumerate(category.trimmed)}
    elif view.shares:
        first = (await app.read(view.subscription.category, stream=view.subscription.stream, limit=1)).events
        key = view.shares[0].share.category, view.shares[0].share.partition_id
        trimmed[key] = first[0].version - 1 if first else view.shares[0].head
    return tuple(
        PositionChange(
            f"{each.share.category}/{each.share.partition_id}",
            each.position,
            0 if to is StartAt.BEGINNING else each.head,
            trimmed.get((each.share.category, each.share.partition_id), 0),
        )
        for each in view.shares
    )
