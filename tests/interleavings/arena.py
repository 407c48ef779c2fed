"""The place where operations meet, on any store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from pprint import pformat
from typing import Any

from tests.interleavings.judging import Judge, Outcomes
from tests.interleavings.operations import OPERATIONS, Instant, Leases, Operation, Verbs, World, a_job
from tests.interleavings.orders import Orders
from tests.interleavings.setups import LIMITED, LIMITS, SETUPS, set_up_schedules
from tests.interleavings.stepping import Order, Side, run_order
from tests.interleavings.tables import Tables, check_whole, observed

from holdfast.store.backend import Backend
from holdfast.store.jobs_over_rows import JobsOverRows

SIDES = 3


@dataclass
class Seen:
    """What was seen in all orders of some operations: in how many of them somebody waited, or was broken off."""

    endings: int = 0
    number: int = 0
    waited: int = 0
    broken_off: int = 0
    outcomes: set[str] = field(default_factory=set)


class Arena:
    """Runs operations together and checks what comes of it."""

    divergences = 0
    """See `Orders`."""

    def __init__(self, backend: Backend, clock: Instant, tables: Tables, verbs: Callable[[Side], Verbs]) -> None:
        self._backend = backend
        self._clock = clock
        self._tables = tables
        self._verbs = verbs
        self._prepared: dict[str, tuple[Leases, int, Judge]] = {}
        self._allowed: dict[tuple[Any, ...], Outcomes] = {}

    @classmethod
    async def open(cls, backend: Backend, clock: Instant, tables: Tables, verbs: Callable[[Side], Verbs]) -> Arena:
        """Return an arena on an open store without jobs."""
        await backend.jobs.enqueue([a_job()])  # its lane stays
        assert isinstance(backend.jobs, JobsOverRows)
        backend.jobs._is_joined = True  # the decision on children is an operation by itself
        return cls(backend, clock, tables, verbs)

    async def _prepare(self, state: str) -> tuple[Leases, int, Judge]:
        """Bring the store into a state once; later it is put back."""
        if state not in self._prepared:
            await self._tables.clear()
            self._clock.now_us = Instant().now_us
            await set_up_schedules(state, self._backend.schedules)
            leases = await SETUPS[state](self._backend.jobs, self._clock)
            await self._tables.keep(state)
            judge = await Judge.of(state)
            seen = observed(await self._tables.read())
            assert [((), seen)] == await judge.allowed([], []), "the store and the model were set up differently"
            self._prepared[state] = leases, self._clock.now_us, judge
        return self._prepared[state]

    async def explore(self, state: str, names: Sequence[str], *, every: bool = False, rolls_back: bool = True) -> Seen:
        """Run the operations in all orders, with all endings or with commits only, and check each outcome.

        At least one side commits. Where all of them roll back, nothing is left to judge, and up to the last end each
        order is one of those in which only the last side commits.
        """
        seen = Seen()
        for endings in product([True, False] if rolls_back else [True], repeat=len(names)):
            if any(endings):
                seen.endings += 1
                await self._explore(state, names, endings, seen=seen, every=every)
        return seen

    async def _explore(
        self, state: str, names: Sequence[str], endings: Sequence[bool], *, seen: Seen, every: bool
    ) -> None:
        for key in LIMITED:  # queues and tasks are not among the tables that are put back
            await self._backend.queues.limit(key, LIMITS.get(state, {}).get(key))
        leases, now_us, judge = await self._prepare(state)
        self._clock.now_us = now_us
        operations = [OPERATIONS[name] for name in names]
        orders = Orders(every=every, divergences=self.divergences)
        while orders.another():
            await self._tables.restore(state)
            order = await run_order(orders, [self._bind(one, leases) for one in operations], endings, self._tables)
            if order is not None:
                seen.number += 1
                seen.waited += any(side.waited for side in order.sides)
                seen.broken_off += any(side.broken_off for side in order.sides)
                seen.outcomes.add(await self._check(state, order, operations, judge))

    def _bind(self, operation: Operation, leases: Leases) -> Any:
        async def run(side: Side) -> Any:
            return await operation(World(self._verbs(side), leases, f"side-{side.number}"))

        return run

    async def _check(self, state: str, order: Order, operations: Sequence[Operation], judge: Judge) -> str:
        pairs = list(zip(operations, order.sides, strict=True))
        names = [f"{one.name}{'' if side.commits else ' (rolled back)'}" for one, side in pairs]
        told = f"{state}: {' x '.join(names)}\n{order}"
        for side in order.sides:
            assert side.error is None, f"{told}\n{side.error!r}"
        rows = await self._tables.read()
        try:
            check_whole(rows)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{told}") from None
        committed = [one if side.commits else None for one, side in pairs]
        may_skip = [side.may_skip for side in order.sides]
        key = (state, *((one.name if one else None) for one in committed), *may_skip)
        if key not in self._allowed:
            self._allowed[key] = await judge.allowed(committed, may_skip)
        came = tuple(side.result if side.commits else None for side in order.sides), observed(rows)
        if came not in self._allowed[key]:
            right = "\nor ".join(map(str, self._allowed[key]))
            raise AssertionError(f"no order of whole operations has this outcome:\n{told}\nis {came}\nnot {right}")
        return pformat(came)  # with sorted keys: rows come in any order
