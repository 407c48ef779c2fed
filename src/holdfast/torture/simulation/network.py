"""Between a process and the store: latency, and everything that can happen to a call.

```text
   fine         sent ── applied ── answered
   refused      sent ── error: nothing was done
   unanswered   sent ── applied ── error: outcome unknown, and it was done
   overtaken    sent ── error: outcome unknown ── applied, after the caller has continued
   slow         sent ────────── applied ────────── answered, up to more than a lease later
```

A read, which is a call that changes nothing, may be answered from an earlier state of the store: at most by the drawn
age, and never from before the latest reply received over this connection when the read was sent. Each stale read has
its own age, so that of two in flight together the later may show less.

While the store is down, or this process is cut off, every call ends in an error, including one that was applied and not
yet answered. While one writer holds the store, all writers wait, and are then served in any order, or time out.
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
_TIMEOUT = 60_000  # microseconds after which an unanswered call times out
_REFUSED, _UNANSWERED, _OVERTAKEN, _SLOW_THERE = (
    0.2,
    0.4,
    0.5,
    0.75,
)  # cumulative shares of the errors; the rest: slow reply


@dataclass(slots=True)
class StoreStatus:
    """The state of the store: whether it is down, how often it was, when it came back, how long it was away."""

    down: bool = False
    outages: int = 0
    back_at: int = -1
    lasted: int = 0
    held_until: int = 0
    """Until when one writer holds the store; reads continue."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Probabilities of a failed call, on the loop's network and on the keeper's, a lost notification, a stale read."""

    trouble: float = 0.0
    keeper_trouble: float = 0.0
    lost_notifications: float = 0.0
    stale_reads: float = 0.0
    oldest: float = 0.0
    """The maximum age of a stale read, in seconds."""


@dataclass(slots=True, eq=False)
class _InFlightCall(Generic[T]):
    act: Callable[[int], T]
    done: Callable[[T], None]
    failed: Callable[[], None]
    back: int
    writes: Callable[[], bool]
    seen: int | None
    """Of a read: the newest state that the caller had seen when it was sent."""
    is_received: bool = True
    """Whether the caller receives the reply."""


def always() -> bool:
    """Return that a call always writes."""
    return True


def never() -> bool:
    """Return that a call only reads."""
    return False


class SimulatedNetwork:
    """The connection of one process, or of one of its threads, to the store."""

    __slots__ = ("_aged", "_rng", "_seen", "_slowest", "_status", "_trouble", "_world", "is_cut", "troubled")

    def __init__(
        self,
        world: SimulatedWorld,
        rng: random.Random,
        status: StoreStatus,
        *,
        trouble: Callable[[], float],
        slowest: float,
        aged: Callable[[int], int],
    ) -> None:
        self._world = world
        self._rng = rng
        self._status = status
        self._trouble = trouble
        self._slowest = int(slowest * SECOND)
        self._aged = aged
        self._seen = 0
        self.is_cut = False
        self.troubled: Callable[[int], None] = _ignore
        """Called with the end of a fault of this connection only; not called for an outage, which affects all."""

    def latency(self) -> int:
        """Draw the latency of one direction."""
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
        """Have the store do `act`; then one of `done` and `failed` is called, later, once.

        `overtakes=False`: the caller's next call for the same rows would wait for this one, as behind the locks of a
        transaction, so this call is never applied after its error. `writes` returns, on arrival, whether it waits for
        the one writer that holds the store.
        """
        self._send(lambda _: act(), done, failed, overtakes=overtakes, writes=writes, seen=None)

    def read(
        self,
        act: Callable[[int], T],
        done: Callable[[T], None],
        failed: Callable[[], None],
        *,
        writes: Callable[[], bool] = never,
    ) -> None:
        """Have `act` read the store as of the time that it is passed; otherwise like `call`."""
        self._send(act, done, failed, overtakes=True, writes=writes, seen=self._seen)

    def _send(
        self,
        act: Callable[[int], T],
        done: Callable[[T], None],
        failed: Callable[[], None],
        *,
        overtakes: bool,
        writes: Callable[[], bool],
        seen: int | None,
    ) -> None:
        there = self.latency()
        call = _InFlightCall(act, done, failed, self.latency(), writes, seen)
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
        hang = int(share * _TIMEOUT)
        self.troubled(world.now + there + call.back + hang)
        if how < _REFUSED or (how >= _UNANSWERED and not overtakes):
            world.after(there + hang, failed)
        elif how < _UNANSWERED:
            call.is_received = False
            call.done = lambda _: world.after(hang, failed)
            world.after(there, lambda: self._arrive(call))
        else:
            world.after(there, failed)
            call.done, call.failed, call.is_received = _ignore, _nothing, False
            world.after(there + hang, lambda: self._arrive(call))

    def _wait(self, call: _InFlightCall[T]) -> None:
        """Wait for the one writer; half of the waiting calls time out after a while."""
        world, until = self._world, self._status.held_until
        wait = int(2 * self._rng.random() * self._slowest)
        if world.now + wait < until and wait < self._slowest:
            world.after(wait, call.failed)
        else:
            world.at(until + self.latency(), lambda: self._arrive(call))

    def _arrive(self, call: _InFlightCall[T]) -> None:
        status, world = self._status, self._world
        if status.down or self.is_cut:
            world.after(call.back, call.failed)
            return
        if world.now < status.held_until and call.writes():
            self._wait(call)
            return
        outages = status.outages
        as_of = world.now if call.seen is None else self._aged(call.seen)
        answer = call.act(as_of)

        def come_back() -> None:
            if status.outages != outages or self.is_cut:
                call.failed()
                return
            if call.is_received:
                self._seen = max(self._seen, as_of)
            call.done(answer)

        world.after(call.back, come_back)


def _ignore(_: object) -> None:
    """Ignore a reply without a waiting caller."""


def _nothing() -> None:
    """Ignore an error without a waiting caller."""
