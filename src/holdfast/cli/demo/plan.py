"""The plan of a run, and its progress."""

from __future__ import annotations

import random

import msgspec

from holdfast.cli.demo.attempt_distribution import AttemptDistribution


class DemoPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a run; they are stored, and an interrupted run continues with them."""

    jobs: int
    success_rate: float
    max_attempts: int
    work_timeout: float
    seed: int

    @property
    def distribution(self) -> AttemptDistribution:
        """The expected distribution of used attempts."""
        return AttemptDistribution(self.success_rate, self.max_attempts)

    def succeeds(self, number: int, used_attempts: int) -> bool:
        """Draw whether this used attempt of a job succeeds; it depends only on the seed."""
        draw = random.Random(f"{self.seed}/{number}/{used_attempts}").random()  # noqa: S311 - not used for security
        return draw < self.success_rate


class DemoRun(msgspec.Struct, frozen=True):
    """A run as stored; its jobs are in a separate queue."""

    queue: str
    plan: DemoPlan
    produced: int
    killed: int
    seconds: float
    is_finished: bool
