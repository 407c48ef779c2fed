"""The input of the allocator, and the shares that new categories need."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.backends.sql.steps import Ask, each, records, rows, run, together
from holdfast.backends.sql.streams.leadership import hold_leadership
from holdfast.backends.sql.streams.nodes import NodeRow, node_view
from holdfast.model.allocation import FORGET_NODES_AFTER, Leadership, NodeKey, Share, ShareState
from holdfast.model.event import partitions_read
from holdfast.model.instants import span_micros
from holdfast.store.steps import Steps
from holdfast.store.stream_values import Survey, SurveyedShare


class _SurveyRow(NamedTuple):
    consumer: str
    category: str
    partition_id: int
    state: str
    generation: int
    owner: str | None
    incarnation: str | None
    target: str | None
    overdue: bool


class _Missing(NamedTuple):
    """A partition in which a consumer of its category, or of the log, has no share."""

    consumer: str
    category_id: int
    partition_id: int
    stream: str | None
    generation: int
    partitions: int
    trimmed: int

    @property
    def is_read(self) -> bool:
        """Whether the consumer's subscription reads this partition."""
        return self.partition_id in partitions_read(self.stream, self.partitions)


def survey() -> Steps[Survey]:
    """Return the input of the allocator."""
    nodes, shares, paused, missing = yield from together(
        Ask("list_nodes", {}, NodeRow),
        Ask("list_shares", {}, _SurveyRow),
        Ask("paused_consumers", {}),
        Ask("missing_shares", {}, _Missing),
    )
    return Survey(
        nodes=tuple(map(node_view, nodes)),
        shares=tuple(map(_share, shares)),
        paused=frozenset(name for (name,) in paused),
        is_complete=not any(share.is_read for share in missing),
    )


def _share(row: _SurveyRow) -> SurveyedShare:
    return SurveyedShare(
        share=Share(row.consumer, row.category, row.partition_id),
        state=ShareState(row.state),
        generation=row.generation,
        owner=None if row.owner is None else NodeKey(row.owner, row.incarnation or ""),
        target=row.target,
        overdue=bool(row.overdue),
    )


def complete_shares(leadership: Leadership) -> Steps[int | None]:
    """Add missing shares, from the first event: their categories are newer than the subscriptions. Forget old nodes."""
    if not (yield from hold_leadership(leadership)):
        return None
    yield from rows("hold_all_consumers")
    missing = [share for share in (yield from records(_Missing, "missing_shares")) if share.is_read]
    shares = [new_share(*share[:3], generation=share.generation, position=share.trimmed) for share in missing]
    yield from each("add_share", shares)
    yield from run("forget_silent_nodes", span=span_micros(FORGET_NODES_AFTER))
    return len(missing)


def new_share(
    consumer: str, category_id: int, partition_id: int, *, generation: int, position: int
) -> dict[str, object]:
    """Return the parameters of `add_share`."""
    place = {"consumer": consumer, "category_id": category_id, "partition_id": partition_id}
    return {**place, "generation": generation, "position_id": position}
