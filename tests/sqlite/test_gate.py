"""The gate: writers of one process one by one, in order, the extending thread first."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from holdfast.app.open import open_backend
from holdfast.backends.sqlite.backend import SqliteBackend
from holdfast.backends.sqlite.error_map import write_lock_held
from holdfast.concurrency.priority_lock import PriorityLock
from holdfast.errors import StoreUnavailable
from holdfast.testing.conformance.base import hold_one

SOON = 5.0
LONG = timedelta(seconds=30)


@pytest.fixture
def threads():
    with ThreadPoolExecutor(8) as threads:
        yield threads


def gate_of(timeout: float) -> PriorityLock:
    return PriorityLock(timeout, partial(write_lock_held, timeout))


def until_waiting(gate: PriorityLock, count: int) -> None:
    give_up = time.monotonic() + SOON
    while len(gate._waiting) + len(gate._first) != count:
        assert time.monotonic() < give_up
        time.sleep(0.001)


def passing(gate: PriorityLock, order: list[str], name: str, *, first: bool = False) -> None:
    with gate.passage(first=first):
        order.append(name)


def test_writers_pass_in_the_order_in_which_they_came_but_the_extending_thread_goes_first(threads):
    gate, order = gate_of(SOON), list[str]()
    gate.enter()
    passed: list[Future[None]] = []
    for name in ("a", "b", "c", "extender"):
        passed.append(threads.submit(passing, gate, order, name, first=name == "extender"))
        until_waiting(gate, len(passed))
    gate.leave()
    for each in passed:
        each.result(SOON)

    assert order == ["extender", "a", "b", "c"]


def test_the_turn_is_handed_over_so_that_nobody_slips_in_before_the_one_who_waits(threads):
    gate, go_on = gate_of(0.05), threading.Event()
    is_inside = threading.Event()

    def hold() -> None:
        with gate.passage():
            is_inside.set()
            go_on.wait(SOON)

    gate.enter()
    holding = threads.submit(hold)
    until_waiting(gate, 1)
    gate.leave()
    with pytest.raises(StoreUnavailable, match="do slow work before the transaction"):
        gate.enter()  # at once, before the one who waits can have noticed
    assert is_inside.wait(SOON)
    go_on.set()
    holding.result(SOON)
    gate.enter()


def test_one_who_gave_up_is_not_handed_the_turn(threads):
    gate = gate_of(0.02)
    gate.enter()
    with pytest.raises(StoreUnavailable):
        threads.submit(gate.enter).result(SOON)
    gate.leave()

    gate.enter()


def test_a_passage_that_raises_is_left():
    gate = gate_of(0.02)
    for _ in range(2):
        with pytest.raises(ValueError, match="inside"), gate.passage():
            raise ValueError("inside")


def test_a_turn_that_comes_at_the_last_moment_is_taken():
    gate = gate_of(0.0)
    gate.enter()
    real = threading.Event.wait
    late: list[bool] = []

    def wait(event: threading.Event, timeout: float | None = None) -> bool:
        answer = real(event, timeout)
        if event in gate._waiting and not late:
            late.append(answer)
            gate.leave()  # after the wait has ended in vain, before the one who waited has said so
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Event, "wait", wait)
        gate.enter()

    assert late == [False]
    with pytest.raises(StoreUnavailable):
        gate.enter()  # it was taken, and is
    gate.leave()
    gate.enter()


async def test_leases_are_extended_before_the_transactions_of_handlers_that_came_earlier(tmp_path: Path, threads):
    store = open_backend(f"sqlite:///{tmp_path / 'jobs.db'}?synchronous=normal")
    assert isinstance(store, SqliteBackend)
    await store.open()
    gate = store._parts.here.gate
    jobs = [await hold_one(store) for _ in range(4)]
    is_held, go_on = asyncio.Event(), asyncio.Event()
    seen: list[int] = []

    async def lease_until(connection) -> int:
        rows = await connection.execute("select lease_until from holdfast_running where seq = ?", (jobs[0].seq,))
        return int(rows.fetchone()[0])

    async def hold() -> None:
        async with store.begin(jobs[0].lease, limit=LONG) as transaction:
            seen.append(await lease_until(transaction.connection))
            is_held.set()
            await go_on.wait()

    async def write(job) -> None:
        async with store.begin(job.lease, limit=LONG) as transaction:
            seen.append(await lease_until(transaction.connection))

    def extend() -> None:
        extender = store.extender()
        try:
            assert extender.extend([jobs[0].lease], timedelta(hours=1)).lost == []
        finally:
            extender.close()

    handling = [asyncio.create_task(hold())]
    await is_held.wait()
    handling += [asyncio.create_task(write(job)) for job in jobs[1:]]
    await asyncio.to_thread(until_waiting, gate, 3)
    extension = asyncio.get_running_loop().run_in_executor(threads, extend)
    await asyncio.to_thread(until_waiting, gate, 4)
    go_on.set()
    async with asyncio.timeout(SOON):
        await asyncio.gather(extension, *handling)
    await store.close()

    before, *after = seen
    assert len(after) == 3
    assert all(until > before for until in after)
