"""Sides that take one step at a time, each when it is told to.

A side runs an operation in a task of its own. Before each statement, and before the end of each transaction, it says
what the step touches and waits. A step that waits for another side's lock is left under way while others go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.interleavings.orders import Footprint, Orders

_SOON = 0.003
_TIMEOUT = 20.0


class RolledBackError(Exception):
    """The transaction was to end so."""


class BrokenOffError(Exception):
    """The store broke this side off in favour of another; nothing was done, and the side begins anew."""


class Blocking(Protocol):
    """Tells which sides wait for which."""

    async def blockers(self, sides: Sequence[int]) -> dict[int, set[int]]:
        """Return for each of these sides those whose locks it waits for."""
        ...


@dataclass
class Side:
    """One of the concurrent operations. `commits`: how its transactions end."""

    number: int
    commits: bool
    changed: asyncio.Event
    next_step: Footprint | None = None
    under_way: Footprint | None = None
    transaction: Footprint = field(default_factory=Footprint)
    may_skip: bool = False
    result: Any = None
    error: BaseException | None = None
    has_ended: bool = False
    waited: bool = False
    broken_off: int = 0
    trace: Callable[[str], None] = field(default=lambda _: None)
    others: Sequence[Side] = ()
    _go: asyncio.Event = field(default_factory=asyncio.Event)

    async def step(self, name: str, footprint: Footprint, act: Callable[[], Awaitable[Any]]) -> Any:
        """Take one step when it is this side's turn."""
        self.next_step = footprint
        self.changed.set()
        await self._go.wait()
        self._go.clear()
        self.trace(name)
        self._see_who_is_in_the_way(footprint)
        try:
            return await act()
        finally:
            self.under_way = None
            self.changed.set()

    def go(self) -> None:
        """Let it take the step that it has told."""
        self.under_way, self.next_step = self.next_step, None
        self._go.set()

    def _see_who_is_in_the_way(self, footprint: Footprint) -> None:
        """What another's open transaction holds may be passed over by a statement that skips locked rows."""
        for other in self.others:
            held = other.transaction | (other.under_way or Footprint())
            if other is not self and footprint.locks & held.locks:
                self.may_skip = True


@dataclass
class Order:
    """What one order of steps came to."""

    sides: list[Side]
    steps: list[tuple[int, str]]

    def __str__(self) -> str:
        """Show the steps as they were taken."""
        return "\n".join(f"  {'      ' * side}{side}: {name}" for side, name in self.steps)


Operation = Callable[[Side], Awaitable[Any]]


async def run_order(
    orders: Orders, operations: Sequence[Operation], endings: Sequence[bool], blocking: Blocking
) -> Order | None:
    """Run the operations together in the next order; None if an order like it was run before."""
    changed = asyncio.Event()
    steps: list[tuple[int, str]] = []
    sides = [Side(number, commits, changed) for number, commits in enumerate(endings)]
    tasks: list[asyncio.Task[None]] = []
    for side, operation in zip(sides, operations, strict=True):
        side.others = sides
        side.trace = lambda name, number=side.number: steps.append((number, name))  # type: ignore[misc]
        tasks.append(asyncio.create_task(_run(side, operation)))
    try:
        async with asyncio.timeout(_TIMEOUT):
            while True:
                await _settle(sides, changed, blocking)
                if all(side.has_ended for side in sides):
                    return Order(sides, steps)
                chosen = orders.choose(_next_steps(sides))
                if chosen is None:
                    return None
                sides[chosen].go()
    except TimeoutError:
        raise AssertionError("nobody went on:\n" + str(Order(sides, steps))) from None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _next_steps(sides: Sequence[Side]) -> dict[int, Footprint]:
    """A step may set others free that are under way, so it touches what they touch."""
    waiting = Footprint()
    for side in sides:
        waiting |= side.under_way or Footprint()
    return {side.number: side.next_step | waiting for side in sides if side.next_step is not None}


async def _run(side: Side, operation: Operation) -> None:
    try:
        while True:
            try:
                side.result = await operation(side)
            except BrokenOffError:
                side.broken_off += 1
            else:
                return
    except RolledBackError:
        pass
    except Exception as error:  # noqa: BLE001 - what an operation raises is its result
        side.error = error
    finally:
        side.has_ended = True
        side.changed.set()


async def _settle(sides: Sequence[Side], changed: asyncio.Event, blocking: Blocking) -> None:
    """Wait until each side has told its next step, has ended, or waits for a lock of one that can go on."""
    while True:
        changed.clear()
        busy = [side for side in sides if side.next_step is None and not side.has_ended]
        if not busy:
            return
        try:
            async with asyncio.timeout(_SOON):
                await changed.wait()
        except TimeoutError:
            if all(side.under_way for side in busy) and await _all_wait(sides, busy, blocking):
                for side in busy:
                    side.waited = True
                return


async def _all_wait(sides: Sequence[Side], busy: Sequence[Side], blocking: Blocking) -> bool:
    """A circle of sides that wait for each other is broken by the store: that is waited for."""
    free = {side.number for side in sides if side.next_step is not None}  # before the question: these stand still
    waits = await blocking.blockers([side.number for side in busy])
    while True:
        more = {number for number, before in waits.items() if before & free} - free
        if not more:
            return all(side.number in free for side in busy)
        free |= more
