"""The allocator: which share goes to which node, as a pure function from the leader's survey to a list of moves.

Four goals, in this order:

1. **Safe.** A share is seized from its owner only for a reason that the store checks again (silent, replaced, overdue);
   and for silence only if the failure detector considers the node dead (`holdfast.streams.failure_detector`). Until
   then a silent node is granted nothing and keeps its shares.
2. **Served.** A free share of a consumer that is not paused goes to a node that can run it, at once.
3. **Even.** Every node has shares of each consumer in proportion to its capacity, give or take one.
4. **Stable.** An owner keeps its share unless evenness requires a move; a node that has just joined gets none for a
   while, since others may join soon after it; at most a quarter of a consumer's shares move at a time.

Nothing here is needed for safety: a bad plan, or two leaders with different plans, only costs time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from typing import Final

from holdfast.model.allocation import (
    GrantTo,
    Move,
    NodeKey,
    Revoke,
    Seize,
    SeizeReason,
    ShareState,
    Timing,
    is_silent,
)
from holdfast.store.stream_values import NodeView, Survey, SurveyedShare
from holdfast.streams.quotas import NodeQuota, quotas

_UNDER_WAY: Final = 4  # at most one in this many of a consumer's shares moves at a time for evenness
_NONE: Final = timedelta(0)


def plan(survey: Survey, timing: Timing, *, gone: Collection[NodeKey]) -> list[Move]:
    """Return the moves toward the desired allocation; none once it is reached.

    Shares of nodes in `gone` are seized because the nodes are silent.
    """
    nodes = {view.node: view for view in survey.nodes}
    by_consumer: dict[str, list[SurveyedShare]] = defaultdict(list)
    for surveyed in survey.shares:
        by_consumer[surveyed.share.consumer].append(surveyed)
    load = Counter(a.owner.node_id for a in survey.shares if a.owner is not None)
    moves: list[Move] = []
    for consumer in sorted(by_consumer):
        shares = sorted(by_consumer[consumer], key=lambda surveyed: surveyed.share)
        planned = _Plan(consumer, nodes, timing, load, gone=gone, paused=consumer in survey.paused)
        moves += planned.moves(shares)
    return moves


def seize_reason(
    surveyed: SurveyedShare, nodes: Mapping[NodeKey, NodeView], gone: Collection[NodeKey]
) -> SeizeReason | None:
    """Return why a share may be seized from its owner, None if it may not."""
    if surveyed.owner is None:
        return None
    if surveyed.owner not in nodes:
        return SeizeReason.REPLACED
    if surveyed.owner in gone:
        return SeizeReason.SILENT
    return SeizeReason.OVERDUE if surveyed.overdue else None


class _Plan:
    """The moves for one consumer."""

    def __init__(
        self,
        consumer: str,
        nodes: Mapping[NodeKey, NodeView],
        timing: Timing,
        load: Counter[str],
        *,
        gone: Collection[NodeKey],
        paused: bool,
    ) -> None:
        self._consumer = consumer
        self._nodes = nodes
        self._timing = timing
        self._load = load
        self._gone = gone
        self._paused = paused
        self._seized: list[Seize] = []
        self._free: list[SurveyedShare] = []  # free now, or after the seizures
        self._kept: dict[str, list[SurveyedShare]] = defaultdict(list)
        self._revoking = 0
        self._count = 0

    def _sort_in(self, surveyed: SurveyedShare) -> None:
        reason = seize_reason(surveyed, self._nodes, self._gone)
        if reason is not None:
            self._seized.append(Seize(surveyed.share, surveyed.generation, reason))
            self._free.append(SurveyedShare(surveyed.share, ShareState.FREE, surveyed.generation + 1))
        elif surveyed.owner is None:
            self._free.append(surveyed)
        elif surveyed.state is ShareState.REVOKING:
            self._revoking += 1
        else:
            self._kept[surveyed.owner.node_id].append(surveyed)

    def moves(self, shares: Collection[SurveyedShare]) -> list[Move]:
        """Return the moves: seizures first, since the shares that they free are granted in the same step."""
        self._count = len(shares)
        for surveyed in shares:
            self._sort_in(surveyed)
        if self._paused:
            return [*self._seized, *(self._revoke(held, None) for held in _all(self._kept))]
        fit = {view.node.node_id: view for view in self._nodes.values() if self._is_fit(view)}
        able = {name: view for name, view in fit.items() if not is_silent(view.silent, view.ttl, _NONE)}
        leaving = [held for node, kept in self._kept.items() if node not in fit for held in kept]
        due = quotas(self._count - self._revoking, self._seats(able))
        grants, lacking = self._grant(able, due)
        return [
            *self._seized,
            *(self._revoke(held, None) for held in leaving),
            *(self._revoke(held, target) for held, target in self._surplus(due, lacking)),
            *grants,
        ]

    def _is_fit(self, view: NodeView) -> bool:
        return not view.is_draining and any(member.consumer == self._consumer for member in view.members)

    def _seats(self, able: Mapping[str, NodeView]) -> list[NodeQuota]:
        """Return the nodes among which the shares are divided, with what each has.

        A node that has just joined waits, unless it has shares, is the intended owner of some, or no other node can run
        the consumer. A join time in the future means that the store's clock was set back since.
        """
        meant = {free.target for free in self._free}
        settled = {
            name: view
            for name, view in able.items()
            if not _NONE <= view.joined < self._timing.settle or name in self._kept or name in meant
        }
        return [
            NodeQuota(name, self._capacity(view), len(self._kept.get(name, ())), self._load[name])
            for name, view in (settled or able).items()
        ]

    def _capacity(self, view: NodeView) -> int:
        return next(member.capacity for member in view.members if member.consumer == self._consumer)

    def _grant(self, able: Mapping[str, NodeView], due: Mapping[str, int]) -> tuple[list[GrantTo], dict[str, int]]:
        """Grant free shares to nodes that lack some, the former owner first; return also what each lacks afterwards."""
        lacking = {name: quota - len(self._kept.get(name, ())) for name, quota in due.items()}
        grants: list[GrantTo] = []
        for free in sorted(self._free, key=lambda a: a.target is None):
            name = free.target if lacking.get(free.target or "", 0) > 0 else _neediest(lacking)
            if name is None:
                break
            lacking[name] -= 1
            self._load[name] += 1
            grants.append(GrantTo(free.share, free.generation, able[name].node))
        return grants, lacking

    def _surplus(self, due: Mapping[str, int], lacking: dict[str, int]) -> Iterable[tuple[SurveyedShare, str]]:
        """Return the shares to move for evenness, with their new owners: a limited number at a time."""
        room = max(1, self._count // _UNDER_WAY) - self._revoking
        for name in sorted(due):
            kept = self._kept.get(name, [])
            for held in kept[due[name] :]:
                target = _neediest(lacking)
                if room <= 0 or target is None:
                    return
                room -= 1
                lacking[target] -= 1
                yield held, target

    def _revoke(self, held: SurveyedShare, target: str | None) -> Revoke:
        # A handler that is cut short at the drain deadline has the grace to end in: its share is released, not seized.
        drain = self._timing.drain
        return Revoke(held.share, held.generation, None if drain is None else drain + self._timing.grace, target)


def _neediest(lacking: Mapping[str, int]) -> str | None:
    """Return the node that lacks the most shares, None if none lacks any."""
    name = max(sorted(lacking), key=lambda node: lacking[node], default=None)
    return name if name is not None and lacking[name] > 0 else None


def _all(kept: Mapping[str, list[SurveyedShare]]) -> Iterable[SurveyedShare]:
    return (held for name in sorted(kept) for held in kept[name])
