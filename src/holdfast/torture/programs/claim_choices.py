"""What a program that claims by itself draws: which jobs, how many at once, and how each of them ends."""

from __future__ import annotations

import os
import random
from enum import Enum, auto
from typing import Final

from holdfast.app.claimed_job import ClaimedJob
from holdfast.errors import OutcomeUnknown, StoreUnavailable, TransactionExpired
from holdfast.torture.programs.settings import WorkerProgramSettings
from holdfast.torture.work.plain import answering, plain, silent
from holdfast.torture.work.transactions import transfer, transfer_in_thread

_TRANSFERS: Final = (transfer.name, transfer_in_thread.name)
PULLED: Final = (*_TRANSFERS, plain.name, silent.name, answering.name)
"""The tasks whose jobs are claimed; workers claim them as well."""
TROUBLE: Final = (StoreUnavailable, OutcomeUnknown, TransactionExpired)
"""What may come of any call, and is no reason to end."""
POLL: Final = 0.1  # seconds
AGAIN: Final = 0.3
_BLOCKING, _BATCHED, _DAWDLES = 0.4, 0.5, 0.2
_MOST_SINGLE, _MOST_BATCHED = 5, 20


class How(Enum):
    """How a claimed job ends."""

    COMPLETED = auto()
    RETRIED = auto()
    FAILED = auto()
    CANCELLED = auto()
    GIVEN_BACK = auto()


class Dice:
    """What is left to chance; nothing of it is repeated with the seed, for what there is to claim is not either."""

    def __init__(self, settings: WorkerProgramSettings) -> None:
        self._chance = random.Random()  # noqa: S311 - varied, not secret
        self._lease = settings.lease
        self.worker_id = f"{settings.name}.pulling.{os.getpid()}"
        self.is_blocking = self._chance.random() < _BLOCKING

    def limit(self) -> tuple[int, bool]:
        """Return how many jobs to claim, and whether they are to end together."""
        batched = self._chance.random() < _BATCHED
        return self._chance.randint(1, _MOST_BATCHED if batched else _MOST_SINGLE), batched

    def how(self) -> How:
        """Return how the next job ends."""
        return self._chance.choices(list(How), [86, 5, 2, 2, 5])[0]

    def work(self) -> float:
        """Return for how many seconds something is worked at."""
        return self._lease * 0.3 * self._chance.random() if self._chance.random() < _DAWDLES else 0.0


def has_effect(job: ClaimedJob) -> bool:
    """Tell whether a job takes effect in the store."""
    return job.job.task in _TRANSFERS
