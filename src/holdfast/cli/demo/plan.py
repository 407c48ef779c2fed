"""A run: what was asked for, and how far it has come."""

from __future__ import annotations

import random

import msgspec

from holdfast.cli.demo.attempt_distribution import Law


class DemoPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a run consists of; it is kept in the store, and an interrupted run goes on by it."""

    jobs: int
    success_rate: float
    max_attempts: int
    work_timeout: float
    seed: int

    @property
    def law(self) -> Law:
        """What is to be expected."""
        return Law(self.success_rate, self.max_attempts)

    def succeeds(self, number: int, tries: int) -> bool:
        """Draw whether this try of a work succeeds: by the seed alone, whoever tries and whenever."""
        draw = random.Random(f"{self.seed}/{number}/{tries}").random()  # noqa: S311 - a demo's chance, no secret
        return draw < self.success_rate


class DemoRun(msgspec.Struct, frozen=True):
    """A run as the store knows it; its works are in a queue of their own."""

    queue: str
    plan: DemoPlan
    produced: int
    killed: int
    seconds: float
    is_finished: bool

    @property
    def is_produced(self) -> bool:
        """Whether all works have been produced."""
        return self.produced >= self.plan.jobs
