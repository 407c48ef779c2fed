"""Between a process and the store: latency, and everything that can become of a call.

```text
   fine         sent ── applied ── answered
   refused      sent ── error: nothing was done
   unanswered   sent ── applied ── error: it may have been done, and it was
   overtaken    sent ── error: it may have been done ── applied, after the caller has gone on
   slow         sent ────────── applied ────────── answered, up to more than a lease later
```

A look, which is a call that changes nothing, may be answered from the store as it was: by at most the drawn age, and
never as it was before the latest answer that had come over this wire when the look was sent. Each old look has an age
of its own, so that of two that are in flight together the later may show less.

While the store is down, or this process is cut off from it, every call ends in an error; one that was applied and not
yet answered too. While one writer holds the store, all that write wait, and are served in any order
then, or give up.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from holdfast.torture.simulation.world import SECOND, SimulatedWorld

T = TypeVar("T")
_LEAST = 200
_SPREAD = 4000
_PATIENCE = 60_000  # microseconds within which a call that is not answered is given up
_REFUSED, _UNANSWERED, _OVERTAKEN, _SLOW_THERE = (
    0.2,
    0.4,
    0.5,
    0.75,
)  # of what goes wrong, up to here; the rest: slow back


@dataclass(slots=True)
class Weather:
    """How the store fares: whether it is down, how often it was, when it came back, how long it was away."""

    down: bool = False
    outages: int = 0
    back_at: int = -1
    lasted: int = 0
    held_until: int = 0
    """Until when one writer holds the store; who only reads goes on."""


@dataclass(frozen=True, slots=True)
class Rates:
    """How often a call goes wrong, on the loop's wire and on the keeper's, a hint is lost, a look is old: of one."""

    trouble: float = 0.0
    keeper_trouble: float = 0.0
    lost_hints: float = 0.0
    old_looks: float = 0.0
    oldest: float = 0.0
    """Seconds by which an old look is old at most."""


@dataclass(slots=True, eq=False)
class _InFlightCall(Generic[T]):
    act: Callable[[int], T]
    done: Callable[[T], None]
    failed: Callable[[], None]
    back: int
    writes: Callable[[], bool]
    heard: int | None
    """Of a look: as of when the caller knew the store when it asked."""
    is_heard: bool = True
    """Whether the caller hears the answer."""


def always() -> bool:
    """Tell that a call writes in any case."""
    return True


def never() -> bool:
    """Tell that a call only reads."""
    return False


class SimulatedNetwork:
    """The way of one process, or of one thread of it, to the store."""

    __slots__ = ("_aged", "_heard", "_rng", "_slowest", "_trouble", "_weather", "_world", "is_cut", "troubled")

    def __init__(
        self,
        world: SimulatedWorld,
        rng: random.Random,
        weather: Weather,
        *,
        trouble: Callable[[], float],
        slowest: float,
        aged: Callable[[int], int],
    ) -> None:
        self._world = world
        self._rng = rng
        self._weather = weather
        self._trouble = trouble
        self._slowest = int(slowest * SECOND)
        self._aged = aged
        self._heard = 0
        self.is_cut = False
        self.troubled: Callable[[int], None] = _ignore
        """Told until when a call goes wrong by the wire's own fault; not told of an outage, which is everybody's."""

    def latency(self) -> int:
        """Draw the time of one way."""
        return _LEAST + int(self._rng.random() * _SPREAD)

    def call(
        self,
        act: Callable[[], T],
        done: Callable[[T], None],
        failed: Callable[[], None],
        *,
        overtakes: bool = True,
        writes: Callable[[], bool] = always,
    ) -> None:
        """Have `act` done by the store; then one of `done` and `failed` is called, later, once.

        `overtakes=False`: the caller's next call for the same rows would wait for this one, as it does behind the
        locks of a transaction, so this call is never applied after its error. `writes` tells, on arrival, whether it
        waits for the one writer that holds the store.
        """
        self._send(lambda _: act(), done, failed, overtakes=overtakes, writes=writes, heard=None)

    def look(
        self,
        act: Callable[[int], T],
        done: Callable[[T], None],
        failed: Callable[[], None],
        *,
        writes: Callable[[], bool] = never,
    ) -> None:
        """Have `act` look at the store, as of the instant that it is given; the rest is as with `call`."""
        self._send(act, done, failed, overtakes=True, writes=writes, heard=self._heard)

    def _send(
        self,
        act: Callable[[int], T],
        done: Callable[[T], None],
        failed: Callable[[], None],
        *,
        overtakes: bool,
        writes: Callable[[], bool],
        heard: int | None,
    ) -> None:
        there = self.latency()
        call = _InFlightCall(act, done, failed, self.latency(), writes, heard)
        if self._rng.random() < self._trouble():
            self._go_wrong(call, there, overtakes=overtakes)
        else:
            self._world.after(there, lambda: self._arrive(call))

    def _go_wrong(self, call: _InFlightCall[T], there: int, *, overtakes: bool) -> None:
        world, failed = self._world, call.failed
        how, share = self._rng.random(), self._rng.random()
        if how >= _OVERTAKEN:
            slow = int(share * self._slowest)
            if how < _SLOW_THERE:
                there += slow
            else:
                call.back += slow
            self.troubled(world.now + there + call.back)
            world.after(there, lambda: self._arrive(call))
            return
        hang = int(share * _PATIENCE)
        self.troubled(world.now + there + call.back + hang)
        if how < _REFUSED or (how >= _UNANSWERED and not overtakes):
            world.after(there + hang, failed)
        elif how < _UNANSWERED:
            call.is_heard = False
            call.done = lambda _: world.after(hang, failed)
            world.after(there, lambda: self._arrive(call))
        else:
            world.after(there, failed)
            call.done, call.failed, call.is_heard = _ignore, _nothing, False
            world.after(there + hang, lambda: self._arrive(call))

    def _wait(self, call: _InFlightCall[T]) -> None:
        """Wait for the one writer; half of those who wait give up after a while."""
        world, until = self._world, self._weather.held_until
        patience = int(2 * self._rng.random() * self._slowest)
        if world.now + patience < until and patience < self._slowest:
            world.after(patience, call.failed)
        else:
            world.at(until + self.latency(), lambda: self._arrive(call))

    def _arrive(self, call: _InFlightCall[T]) -> None:
        weather, world = self._weather, self._world
        if weather.down or self.is_cut:
            world.after(call.back, call.failed)
            return
        if world.now < weather.held_until and call.writes():
            self._wait(call)
            return
        outages = weather.outages
        as_of = world.now if call.heard is None else self._aged(call.heard)
        answer = call.act(as_of)

        def come_back() -> None:
            if weather.outages != outages or self.is_cut:
                call.failed()
                return
            if call.is_heard:
                self._heard = max(self._heard, as_of)
            call.done(answer)

        world.after(call.back, come_back)


def _ignore(_: object) -> None:
    """Take an answer that nobody waits for."""


def _nothing() -> None:
    """Take an error that nobody waits for."""
