"""Warns of ready jobs in a worker's queues whose task no live worker knows: nothing else reports that they wait."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from holdfast.store.insight import Insight
from holdfast.store.values import ClaimRequest
from holdfast.store.verbs.explain import worker_fact

_logger = logging.getLogger("holdfast.worker")
_SOON: Final = 1.0  # seconds from the first claim to the first look
_IDLE: Final = 10.0  # seconds between looks of a worker that finds nothing to claim
_BUSY: Final = 60.0  # seconds between looks of a busy one


class UnknownTasks:
    """Looks for such jobs now and then, and logs each task once."""

    def __init__(self, insight: Callable[[], Insight]) -> None:
        self._insight = insight
        self._looked_at: float | None = None
        self._logged: set[tuple[str, str]] = set()

    def is_look_due(self, now: float, claimed: int) -> bool:
        """Note how many jobs a claim returned; return whether to look now."""
        if self._looked_at is None:
            self._looked_at = now + _SOON - _IDLE
        if now - self._looked_at < (_BUSY if claimed else _IDLE):
            return False
        self._looked_at = now
        return True

    async def look(self, request: ClaimRequest) -> None:
        """Log tasks with ready jobs in the worker's queues that neither it nor another live worker runs."""
        unknown = [
            waiting
            for waiting in await self._insight().waiting_tasks()
            if not waiting.paused
            and waiting.task not in request.tasks
            and request.serves(waiting.queue)
            and (waiting.queue, waiting.task) not in self._logged
        ]
        if not unknown:
            return
        live = [fact for fact in map(worker_fact, await self._insight().workers()) if fact.is_live]
        for waiting in unknown:
            if any(worker.serves(waiting.queue) and worker.knows(waiting.task) for worker in live):
                continue
            self._logged.add((waiting.queue, waiting.task))
            _logger.warning(
                "jobs of task %s are ready in queue %s, but no live worker knows this task: start a worker whose app "
                "defines it, or cancel them with `holdfast job cancel --queue %s --task %s`",
                waiting.task, waiting.queue, waiting.queue, waiting.task,
            )  # fmt: skip
