"""What every scenario is given: the store, the sizes, and how to compare two sides fairly."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import msgspec

from benchmarks.record import Record, record
from benchmarks.stores import Store


class Sizes(msgspec.Struct, frozen=True):
    """How much each scenario does; all follow from the number of jobs."""

    jobs: int
    single: int  # enqueued one by one
    latency: int  # enqueued into an idle worker
    shallow: int  # ready jobs of the near case
    deep: int  # ready jobs of the far case
    claims: int  # measured per case
    memory: int  # drained while memory is watched
    held: int  # done under a held snapshot before the rate is taken
    held_long: int  # the same, where there is time

    @classmethod
    def of(cls, jobs: int) -> Sizes:
        """Scale from the number of jobs; 100,000 is the full size."""
        small = jobs < 10_000
        return cls(
            jobs=jobs,
            single=min(2000, max(20, jobs // 50)),
            latency=20 if small else 500,
            shallow=1000,
            deep=max(2000, 10 * jobs),
            claims=5 if small else 151,
            memory=10 * jobs,
            held=2 * jobs,
            held_long=20 * jobs,
        )


class Wrong(Exception):  # noqa: N818 - it says what the run was
    """A job was lost, doubled or left behind: the figure is worth nothing."""


def check(found: object, wanted: object, what: str) -> None:
    """Fail the run unless the store holds what it must."""
    if found != wanted:
        message = f"{what}: found {found}, wanted {wanted}"
        raise Wrong(message)


class Bench(msgspec.Struct, frozen=True):
    """One run."""

    store: Store
    sizes: Sizes
    repeats: int = 3
    events: str | None = None
    """The URL of Kafka."""

    def compare(self, name: str, ours: Callable[[], float], raw: Callable[[], float], *, unit: str) -> Record:
        """Measure both sides in turn, and record the medians."""
        value, compared = self.medians(ours, raw)
        return self.record(name, value, unit=unit, raw=compared)

    def medians(self, *sides: Callable[[], float]) -> list[float]:
        """Measure all sides in turn, each first and last as often as it can be; return their medians."""
        figures: list[list[float]] = [[] for _ in sides]
        for index in range(self.repeats):
            turn = list(zip(sides, figures, strict=True))
            for side, found in turn if index % 2 == 0 else reversed(turn):
                found.append(side())
        return [median(found) for found in figures]

    def record(self, name: str, value: float, *, unit: str, raw: float | None) -> Record:
        """Record a figure of this store."""
        return record(name, self.store.name, value, unit=unit, raw=raw)
