"""Two verbs at once on SQLite: whatever comes between the transactions of the first, the outcome is a serial one.

A verb is one transaction or several: a look before the write, the decision on children after it. Here another verb runs
as a whole before each of them. What both have answered, and what is stored once nothing is left to decide, must be what
one of the two serial orders gives. Operations and states are those of `tests/interleavings`.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, closing
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.interleavings.operations import LEASE, OPERATIONS, Instant, Leases, World
from tests.interleavings.setups import LIMITED, LIMITS, SETUPS, set_up_schedules
from tests.interleavings.tables import TABLES, Rows, check_whole, observed

from holdfast.backends.sqlite.runners import SessionRunner
from holdfast.errors import LeaseLost
from holdfast.model.job import Lease
from holdfast.model.outcome import Completed
from holdfast.store.backend import Backend
from holdfast.store.jobs import JobStore
from holdfast.store.schedules import ScheduleStore
from holdfast.store.values import Extension, Finish, Verdict
from holdfast.testing.conformance.base import in_extender
from holdfast.testing.stores import open_store

_COMPLETED = Completed()


class BackendVerbs:
    """What the operations call, on a whole backend."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.jobs: JobStore = backend.jobs
        self.schedules: ScheduleStore = backend.schedules

    async def extend_many(self, held: Sequence[Lease], duration: timedelta) -> Extension:
        return await in_extender(self._backend, lambda extender: extender.extend(held, duration))

    async def complete_inside(self, lease: Lease) -> Verdict:
        return (await self.batch_inside([Finish(lease, _COMPLETED)])).get(lease.job_id, Verdict.LOST)

    async def batch_inside(self, finishes: Sequence[Finish]) -> dict[str, Verdict]:
        leases = [finish.lease for finish in finishes]
        try:
            async with self._backend.transactions.begin_many(leases, limit=LEASE) as transaction:
                kept = [finish for finish in finishes if (finish.lease.seq, finish.lease.fence) in transaction.held]
                verdicts = await transaction.finish(kept)
        except LeaseLost:
            return {}
        return {finish.lease.job_id: verdict for finish, verdict in zip(kept, verdicts, strict=True)}

    def together(self) -> AbstractAsyncContextManager[None]:
        raise NotImplementedError  # in a transaction of a handler, several verbs are one


class Prepared(NamedTuple):
    """A file in some state, and what is known of it."""

    path: Path
    leases: Leases
    now_us: int


async def prepare(folder: Path, state: str) -> Prepared:
    clock, path = Instant(), folder / "prepared.db"
    async with open_store(f"sqlite:///{path}", clock=clock) as backend:
        for key in LIMITED:
            if (limit := LIMITS.get(state, {}).get(key)) is not None:
                await backend.queues.limit(key, limit)
        await set_up_schedules(state, backend.schedules)
        leases = await SETUPS[state](backend.jobs, clock)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma wal_checkpoint(truncate)")
    return Prepared(path, leases, clock.now_us)


def stored(path: Path) -> Rows:
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        there = {name for (name,) in connection.execute("select name from sqlite_schema where type = 'table'")}
        rows: Rows = {table: [] for table in TABLES}
        for table in TABLES:
            if f"holdfast_{table}" in there:  # counts are not summed up in lanes, as they are on a server
                rows[table] = list(map(dict, connection.execute(f"select * from holdfast_{table}")))  # noqa: S608
        return rows


class Outcome(NamedTuple):
    """How often the first verb took a transaction, what both have answered, and what is stored."""

    transactions: int
    answers: tuple[Any, Any]
    stored: dict[str, Any]


async def run(
    prepared: Prepared, first: str, second: str, sides: tuple[str, str], before: int | None, patch: pytest.MonkeyPatch
) -> Outcome:
    """Run the first operation, and the second before its `before`-th transaction; after it if it has fewer, or None."""
    path = prepared.path.with_name("run.db")
    shutil.copy(prepared.path, path)
    clock = Instant()
    clock.now_us = prepared.now_us
    url = f"sqlite:///{path}"
    async with open_store(url, clock=clock) as backend, open_store(url, clock=clock) as rival:
        one, other = (
            World(BackendVerbs(store), prepared.leases, side)
            for store, side in zip((backend, rival), sides, strict=True)
        )
        answers: list[Any] = []
        count, is_rival = 0, False

        async def come_between() -> None:
            nonlocal count, is_rival
            if is_rival:
                return
            count += 1
            if count == before:
                is_rival = True
                answers.append(await OPERATIONS[second](other))
                is_rival = False

        with patch.context() as patched:
            for name in ("write", "read"):
                patched.setattr(SessionRunner, name, _after(come_between, getattr(SessionRunner, name)))
            answer = await OPERATIONS[first](one)
        if not answers:
            answers.append(await OPERATIONS[second](other))
        check_whole(stored(path))
        await backend.jobs.promote(100)
        rows = stored(path)
    check_whole(rows)
    path.unlink()
    return Outcome(count, (answer, answers[0]), observed(rows))


def _after(come_between: Any, act: Any) -> Any:
    async def acting(runner: SessionRunner, verb: Any) -> Any:
        await come_between()
        return await act(runner, verb)

    return acting


async def check(prepared: Prepared, first: str, second: str, patch: pytest.MonkeyPatch) -> int:
    """Check all places; return how many there are between the transactions of the first."""
    serial = await run(prepared, first, second, ("a", "b"), None, patch)
    if serial.transactions <= 1:
        return 0
    reverse = await run(prepared, second, first, ("b", "a"), None, patch)
    allowed = (serial[1:], (reverse.answers[::-1], reverse.stored))
    for place in range(2, serial.transactions + 1):
        came = await run(prepared, first, second, ("a", "b"), place, patch)
        told = f"{second!r} before transaction {place} of {first!r}"
        assert came[1:] in allowed, f"{told}\n{came[1:]}\nnot {allowed}"
    return serial.transactions - 1


USUAL = [
    ("family", ("complete", "complete second")),
    ("family", ("failed", "cancel child")),
    ("family ended", ("claim", "settle")),
    ("family", ("complete x, y", "enqueue grandchild")),
    ("family with key", ("retry", "enqueue u")),
    ("schedule declared", ("declare other times", "pause schedule")),
    ("schedule due", ("fire", "fire")),
    ("schedule due", ("fire", "put other times")),
    ("ready", ("claim", "claim")),
]


@pytest.mark.parametrize(("state", "pair"), USUAL, ids=str)
async def test_the_outcome_is_that_of_a_serial_order(
    state: str, pair: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await check(await prepare(tmp_path, state), *pair, monkeypatch) >= 1
