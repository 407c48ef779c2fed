"""What a direct claim loop draws: which jobs, how many at once, and the outcome of each."""

from __future__ import annotations

import os
import random
from enum import Enum, auto
from typing import Final

from holdfast.app.claimed_job import ClaimedJob
from holdfast.errors import OutcomeUnknown, StoreUnavailable, TransactionExpired
from holdfast.torture.programs.settings import WorkerProgramSettings
from holdfast.torture.work.attempt import writes_effects
from holdfast.torture.work.plain import answering, plain, silent
from holdfast.torture.work.transactions import transfer, transfer_in_thread

_TRANSFERS: Final = (transfer.name, transfer_in_thread.name)
TASKS: Final = (*_TRANSFERS, plain.name, silent.name, answering.name)
"""The tasks whose jobs are claimed directly; workers claim them as well."""
TRANSIENT: Final = (StoreUnavailable, OutcomeUnknown, TransactionExpired)
"""Errors that any call may raise, and that do not end the loop."""
POLL: Final = 0.1  # seconds
RETRY_AFTER: Final = 0.3
_BLOCKING, _BATCHED, _SLOW = 0.4, 0.5, 0.2
_MOST_SINGLE, _MOST_BATCHED = 5, 20


class End(Enum):
    """The outcome of a claimed job."""

    COMPLETED = auto()
    RETRIED = auto()
    FAILED = auto()
    CANCELLED = auto()
    RELEASED = auto()


class ClaimChoices:
    """Random choices; not repeatable from the seed, because what can be claimed is not either."""

    def __init__(self, settings: WorkerProgramSettings) -> None:
        self._chance = random.Random()  # noqa: S311 - varied, not secret
        self._lease = settings.lease
        self.worker_id = f"{settings.name}.claiming.{os.getpid()}"
        self.is_blocking = self._chance.random() < _BLOCKING

    def limit(self) -> tuple[int, bool]:
        """Return how many jobs to claim, and whether they are finished together."""
        batched = writes_effects() and self._chance.random() < _BATCHED
        return self._chance.randint(1, _MOST_BATCHED if batched else _MOST_SINGLE), batched

    def end(self) -> End:
        """Return the outcome of the next job."""
        return self._chance.choices(list(End), [86, 5, 2, 2, 5])[0]

    def work(self) -> float:
        """Return the seconds of simulated work."""
        return self._lease * 0.3 * self._chance.random() if self._chance.random() < _SLOW else 0.0


def has_effect(job: ClaimedJob) -> bool:
    """Return whether a job has an effect in the store."""
    return writes_effects() and job.job.task in _TRANSFERS
