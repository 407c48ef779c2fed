"""The settings of a program of a run, passed as its only argument; secrets are passed in the environment."""

from __future__ import annotations

import random

import msgspec


class WorkerProgramSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A worker: `processes` above one puts it under a supervisor; `skew` is the error of its wall clock.

    `claims_directly`: not a worker, but a direct claim loop.
    """

    name: str
    parent: int
    lease: float
    queues: tuple[str, ...]
    processes: int = 1
    concurrency: int = 10
    prefetch_max: int = 50
    batch_max: int = 50
    knows_rare_task: bool = True
    skew: float = 0.0
    claims_directly: bool = False


class ProducerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A producer: so many jobs at this rate, then more until it is stopped."""

    name: str
    parent: int
    seed: int
    jobs: int
    share: float
    rate: float
    lease: float

    def chance(self, what: str = "work") -> random.Random:
        """Return a random generator that is the same for the same seed."""
        return random.Random(f"{self.seed}/{self.name}/{what}")  # noqa: S311 - repeatable on purpose


class OutsideSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The outside server."""

    name: str
    parent: int


class Produced(msgspec.Struct, frozen=True):
    """A progress line of a producer."""

    jobs: int
    calls: int


class Listening(msgspec.Struct, frozen=True):
    """The line that the outside server writes once."""

    url: str
