"""Shrink a failing scenario: fewer faults, fewer jobs, fewer workers, a calmer network, while the same rule breaks.

The result is another run, not a part of the first: random draws differ once something is left out. That does not matter
as long as it breaks the same rule; and it is as repeatable as the first, since shrinking draws nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from holdfast.torture.simulation.network import Rates
from holdfast.torture.simulation.run import SimulationVerdict, run
from holdfast.torture.simulation.scenario import Scenario

T = TypeVar("T")
_MOST_RUNS = 400


def shrink(failed: SimulationVerdict, *, liveness: bool = False) -> SimulationVerdict:
    """Return the verdict on the smallest scenario, found within a bounded number of runs, that breaks the same rule."""
    best = failed
    runs = 0
    smaller = True
    while smaller:
        smaller = False
        for candidate in _smaller(best.scenario):
            if runs >= _MOST_RUNS:
                return best
            runs += 1
            verdict = run(candidate, liveness=liveness)
            if verdict.rule == failed.rule:
                best, smaller = verdict, True
                break
    return best


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    """Yield scenarios with something left out, the largest cuts first."""
    if scenario.rates != Rates():
        yield replace(scenario, rates=Rates())
        yield from _calmer(scenario)
    for events in _without(scenario.events):
        yield replace(scenario, events=events)
    for works in _without(scenario.works):
        if works:
            yield replace(scenario, works=works)
    for seats in _without(scenario.seats):
        if seats and seats[0].queues is None:
            yield replace(scenario, seats=seats)
    yield from _simplified(scenario)


def _calmer(scenario: Scenario) -> Iterator[Scenario]:
    """Yield scenarios without one kind of network fault."""
    rates = scenario.rates
    for calmer in (
        replace(rates, trouble=0.0),
        replace(rates, keeper_trouble=0.0),
        replace(rates, lost_notifications=0.0),
        replace(rates, stale_reads=0.0, oldest=0.0),
    ):
        if calmer != rates:
            yield replace(scenario, rates=calmer)


def _without(things: tuple[T, ...]) -> Iterator[tuple[T, ...]]:
    """Yield the items without a half, a quarter, ... and at last without each single one."""
    size = len(things)
    while size:
        for first in range(0, len(things), size):
            yield things[:first] + things[first + size :]
        size //= 2


def _simplified(scenario: Scenario) -> Iterator[Scenario]:
    """Yield scenarios in which one thing is simpler."""
    plainer: Sequence[Callable[[Scenario], Scenario]] = (
        lambda each: replace(each, seats=tuple(replace(seat, rate=1.0, offset=0.0) for seat in each.seats)),
        lambda each: replace(each, works=tuple(replace(work, at=0) for work in each.works)),
        lambda each: replace(each, works=tuple(replace(work, swallows=False) for work in each.works)),
    )
    for change in plainer:
        changed = change(scenario)
        if changed != scenario:
            yield changed
