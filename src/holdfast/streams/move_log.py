"""Reports the moves of partitions: those that come within a moment together, per consumer, category and change."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from holdfast.hooks.observers import Hooks
from holdfast.hooks.values import PartitionMove
from holdfast.model.allocation import Share

_logger = logging.getLogger("holdfast.streams")
_GATHER: Final = 0.1  # seconds: partitions drain one by one, and are reported together if they end together


def moves_of(change: str, shares: Iterable[Share]) -> list[PartitionMove]:
    """Return what happened to some shares, per consumer and category."""
    partitions: dict[tuple[str, str], set[int]] = defaultdict(set)
    for share in shares:
        partitions[share.consumer, share.category].add(share.partition_id)
    return [
        PartitionMove(consumer, category, tuple(sorted(ids)), change)
        for (consumer, category), ids in partitions.items()
    ]


def log_move(move: PartitionMove) -> None:
    """Log a move."""
    noun = "partition" if len(move.partitions) == 1 else "partitions"
    listed = ", ".join(map(str, move.partitions))
    _logger.info("consumer %s: %s %s of %s %s", move.consumer, noun, listed, move.category, move.change)


class PartitionMoves:
    """Gathers the moves of one node for a moment, then reports them, in the order in which they began."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self._moves: dict[str, list[Share]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def note(self, change: str, share: Share) -> None:
        """Note a move, to be reported soon."""
        self._moves.setdefault(change, []).append(share)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_GATHER, self.flush)

    def flush(self) -> None:
        """Report what was noted."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        moves, self._moves = self._moves, {}
        for change, shares in moves.items():
            for move in moves_of(change, shares):
                self._hooks.partition_move.emit(move)
