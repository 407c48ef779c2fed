"""Leader election, and the periodic allocation pass of the leader.

Leadership is a row with an epoch and a lease: not a session lock, so it works through a pooler and survives the loss of
a connection. Every node attempts to acquire it; the leader surveys all nodes and shares and requests the moves that the
allocator plans. The store compares the epoch in the transaction of each move, so a leader that was frozen changes
nothing. Two leaders at once would do no harm either: the generation of each share fences its effects. Which nodes count
as dead is decided by `holdfast.streams.failure_detector`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Sequence
from typing import Final, TypeVar

from holdfast.errors import StoreError
from holdfast.model.allocation import Leadership, Move, NodeKey, Seize, SeizeReason, Share, Timing
from holdfast.runtime.uptime import uptime
from holdfast.store.backend import Backend
from holdfast.store.stream_values import Survey
from holdfast.streams.allocator import plan
from holdfast.streams.failure_detector import FailureDetector
from holdfast.streams.move_log import log_move, moves_of

_logger = logging.getLogger("holdfast.streams")
T = TypeVar("T")
_REASONS: Final = {
    SeizeReason.SILENT: "dead: no heartbeat",
    SeizeReason.REPLACED: "it has left or was started again",
    SeizeReason.OVERDUE: "it did not release them in time",
}
_TIDY_EVERY: Final = 3600.0  # seconds; and at the beginning of each leadership


class Leader:
    """Acquires leadership when it is free, and moves shares while it has it."""

    def __init__(self, backend: Backend, node: NodeKey, timing: Timing) -> None:
        self._backend = backend
        self._node = node
        self._timing = timing
        self._leadership: Leadership | None = None
        self._detector = FailureDetector(timing)
        self._tidied = float("-inf")

    @property
    def is_leading(self) -> bool:
        """Whether this node was the leader in its last pass."""
        return self._leadership is not None

    async def run(self) -> None:
        """Run a pass periodically, until cancelled."""
        while True:
            try:
                await self.allocate_once()
            except StoreError as error:
                self._leadership = None
                _logger.warning("node %s: the leader pass failed, retrying: %s", self._node.node_id, error)
            await asyncio.sleep(self._timing.allocate_every.total_seconds())

    async def allocate_once(self) -> None:
        """Acquire or extend leadership; as the leader, carry out the moves that the allocator plans."""
        store = self._backend.streams.allocations
        was = self._leadership
        self._leadership = await self._ask(store.lead(self._node, self._timing.leader_lease))
        if self._leadership is None:
            self._detector.broken()
            return
        if was != self._leadership:
            _logger.info("node %s is the leader, epoch %d", self._node.node_id, self._leadership.epoch)
            self._tidied = float("-inf")
        survey = await self._ask(store.survey())
        if not survey.is_complete or uptime() - self._tidied >= _TIDY_EVERY:
            await self._ask(store.complete_shares(self._leadership))
            self._tidied = uptime()
            survey = await self._ask(store.survey())
        moves = plan(survey, self._timing, gone=self._detector.gone(survey.nodes, uptime()))
        if not moves:
            return
        done = await self._ask(store.move_shares(self._leadership, moves, grace=self._timing.grace))
        if done is None:
            _logger.info("node %s is no longer the leader", self._node.node_id)
            self._leadership = None
        elif any(done):
            _log_seized(survey, moves, done)
            self._backend.notifier.notify()

    async def _ask(self, call: Awaitable[T]) -> T:
        """Call the store, and report to the failure detector whether it answered."""
        sent = uptime()
        try:
            answer = await call
        except StoreError:
            self._detector.broken()
            raise
        self._detector.answered(sent=sent, now=uptime())
        return answer

    async def resign(self) -> None:
        """Resign, if this node is the leader, so that the next one need not wait for the lease to expire."""
        leadership, self._leadership = self._leadership, None
        if leadership is not None:
            await self._backend.streams.allocations.resign(leadership)


def _log_seized(survey: Survey, moves: Sequence[Move], done: Sequence[bool]) -> None:
    """Log the shares that were seized, in one line per former owner, reason and consumer."""
    owners = {state.share: state.owner for state in survey.shares}
    seized: dict[str, list[Share]] = defaultdict(list)
    for move, is_done in zip(moves, done, strict=True):
        owner = owners.get(move.share)
        if is_done and isinstance(move, Seize) and owner is not None:
            seized[f"taken over from node {owner.node_id} ({_REASONS[move.reason]})"].append(move.share)
    for change, shares in seized.items():
        for seizure in moves_of(change, shares):
            log_move(seizure)
