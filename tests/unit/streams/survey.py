"""Surveys for tests, and a store of allocations that carries out moves as the real ones do."""

from __future__ import annotations

from datetime import timedelta

from holdfast.model.allocation import GrantTo, Move, NodeKey, Revoke, Seize, Share, ShareState, Timing, is_silent
from holdfast.store.stream_values import Member, NodeView, Survey, SurveyedShare
from holdfast.streams.allocator import plan

TIMING = Timing()


def node(name: str, *, capacity: int = 1, silent: float = 0, joined: float = 60, consumers=("sync",), draining=False):
    """Return a node that has been there for a minute."""
    return NodeView(
        node=NodeKey(name, f"{name}-1"),
        host="here",
        pid=1,
        is_draining=draining,
        silent=timedelta(seconds=silent),
        ttl=TIMING.ttl,
        joined=timedelta(seconds=joined),
        members=tuple(Member(consumer, capacity) for consumer in consumers),
    )


class Board:
    """Allocations of one or more consumers, and the nodes that share them."""

    def __init__(self, partitions: int, nodes=(), *, consumers=("sync",)) -> None:
        self.nodes = {view.node.node_id: view for view in nodes}
        self.paused: frozenset[str] = frozenset()
        self.moved = 0
        self.gone: list[NodeKey] | None = None  # None: whoever is silent by the store's clock
        self.rows = {
            Share(consumer, "companies", number): SurveyedShare(
                Share(consumer, "companies", number), ShareState.FREE, 0
            )
            for consumer in consumers
            for number in range(partitions)
        }

    def survey(self) -> Survey:
        return Survey(tuple(self.nodes.values()), tuple(self.rows.values()), paused=self.paused)

    def plan(self) -> list[Move]:
        gone = [view.node for view in self.nodes.values() if is_silent(view.silent, view.ttl, TIMING.grace)]
        return plan(self.survey(), TIMING, gone=gone if self.gone is None else self.gone)

    def carry_out(self, moves: list[Move]) -> None:
        """Apply moves with the guards of the port; a move on something else than it was planned on fails the test."""
        for move in moves:
            row = self.rows[move.share]
            assert row.generation == move.generation, f"{move} was planned on another state than {row}"
            match move:
                case GrantTo():
                    assert row.state is ShareState.FREE
                    self.rows[move.share] = SurveyedShare(move.share, ShareState.GRANTED, row.generation + 1, move.node)
                case Revoke():
                    assert row.state is ShareState.GRANTED
                    self.moved += 1
                    self.rows[move.share] = SurveyedShare(
                        move.share, ShareState.REVOKING, row.generation, row.owner, move.target
                    )
                case Seize():
                    assert row.owner is not None
                    self.rows[move.share] = SurveyedShare(move.share, ShareState.FREE, row.generation + 1)
                case _:
                    raise AssertionError(move)

    def release_all(self) -> None:
        """Let every owner that was asked release what it was asked for."""
        for share, row in self.rows.items():
            if row.state is ShareState.REVOKING:
                self.rows[share] = SurveyedShare(share, ShareState.FREE, row.generation, None, row.target)

    def settle(self, *, rounds: int = 200) -> int:
        """Pass until nothing is to be moved; return how many passes it took."""
        for count in range(rounds):
            moves = self.plan()
            if not moves:
                return count
            self.carry_out(moves)
            self.release_all()
        raise AssertionError(f"still moving after {rounds} passes: {self.plan()[:3]}")

    def counts(self, consumer: str = "sync") -> dict[str, int]:
        """Return how many shares of a consumer each node owns."""
        counts = dict.fromkeys(self.nodes, 0)
        for share, row in self.rows.items():
            if share.consumer == consumer and row.owner is not None:
                counts[row.owner.node_id] += 1
        return counts

    def owners(self) -> dict[Share, str | None]:
        return {share: None if row.owner is None else row.owner.node_id for share, row in self.rows.items()}
