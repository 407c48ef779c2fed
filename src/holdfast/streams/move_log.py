"""Logs the moves of partitions: those that come within a moment in one line per consumer, category and change."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from holdfast.model.allocation import Share

_logger = logging.getLogger("holdfast.streams")
_GATHER: Final = 0.1  # seconds: partitions drain one by one, and are released in one line if they end together


def log_moves(change: str, shares: Iterable[Share]) -> None:
    """Log what happened to some shares, in one line per consumer and category."""
    partitions: dict[tuple[str, str], set[int]] = defaultdict(set)
    for share in shares:
        partitions[share.consumer, share.category].add(share.partition_id)
    for (consumer, category), ids in partitions.items():
        noun = "partition" if len(ids) == 1 else "partitions"
        listed = ", ".join(map(str, sorted(ids)))
        _logger.info("consumer %s: %s %s of %s %s", consumer, noun, listed, category, change)


class MoveLog:
    """Gathers the moves of one node for a moment, then logs them, in the order in which they began."""

    def __init__(self) -> None:
        self._moves: dict[str, list[Share]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def note(self, change: str, share: Share) -> None:
        """Note a move, to be logged soon."""
        self._moves.setdefault(change, []).append(share)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_GATHER, self.flush)

    def flush(self) -> None:
        """Log what was noted."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        moves, self._moves = self._moves, {}
        for change, shares in moves.items():
            log_moves(change, shares)
