"""Handlers' transactions at the edges: cancelled at the gate, undone by SQLite, past their limit, refused the file."""

# ruff: noqa: PT012 - what a transaction raises is raised out of its block

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from tests.app.work import ask, change, connected

from holdfast.app.open import open_backend
from holdfast.backends.sqlite.backend import SqliteBackend
from holdfast.backends.sqlite.connection import Connection
from holdfast.backends.sqlite.handler_transaction import SqliteTransaction
from holdfast.errors import StoreError, StoreUnavailable, TransactionExpired
from holdfast.store.values import Standing
from holdfast.testing.conformance.base import a_job, enqueue, hold_one

LONG = timedelta(seconds=30)
SHORT = timedelta(seconds=0.05)
SOON = 5.0
TIMEOUT = 1.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteBackend]:
    """A store on a file, whose writers wait a second for the write lock and no longer."""
    backend = open_backend(f"sqlite:///{path}?synchronous=normal&busy_timeout={TIMEOUT}")
    assert isinstance(backend, SqliteBackend)
    await backend.open()
    yield backend
    await backend.close()


async def somebody_waits(store: SqliteBackend) -> None:
    """Wait until a writer of this process stands at the gate."""
    async with asyncio.timeout(SOON):
        while not store._parts.here.gate._waiting:  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0.001)


@contextlib.contextmanager
def nothing_lasts():
    """See that what is done inside does not take as long as a wait for the write lock."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < TIMEOUT


# --- nobody waits for it any more ------------------------------------------------------------------------------------


async def cancelled(task: asyncio.Task[None], times: int) -> None:
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asyncio.shield(task), SOON)


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_a_handler_cancelled_at_the_gate_leaves_no_lock_behind_however_often_it_is_cancelled(store, times):
    holder, waiter = await hold_one(store), await hold_one(store)
    is_held, go_on = asyncio.Event(), asyncio.Event()
    entered: list[str] = []

    async def hold() -> None:
        async with store.begin(holder.lease, limit=LONG):
            is_held.set()
            await go_on.wait()

    async def wait() -> None:
        async with store.begin(waiter.lease, limit=LONG):
            entered.append("never")

    holding = asyncio.create_task(hold())
    await is_held.wait()
    waiting = asyncio.create_task(wait())
    await somebody_waits(store)
    await cancelled(waiting, times)  # ends at once, though the lock is held by another
    go_on.set()
    await holding

    with nothing_lasts():
        await enqueue(store, a_job())
        async with store.begin(waiter.lease, limit=LONG):
            pass
    assert entered == []


async def test_a_transaction_begun_for_a_handler_that_was_cancelled_in_that_moment_is_rolled_back(store, monkeypatch):
    job = await hold_one(store)
    is_begun = threading.Event()
    real = SqliteTransaction._limit

    def begun(transaction: SqliteTransaction) -> None:
        real(transaction)
        is_begun.set()

    monkeypatch.setattr(SqliteTransaction, "_limit", begun)

    async def handle() -> None:
        async with store.begin(job.lease, limit=LONG):
            pytest.fail("the handler was cancelled before it could enter")

    handling = asyncio.create_task(handle())
    await asyncio.sleep(0)
    assert is_begun.wait(SOON)  # blocks the loop: the handler cannot hear of it
    await cancelled(handling, 1)

    with nothing_lasts():
        await enqueue(store, a_job())
        async with store.begin(job.lease, limit=LONG):
            pass


async def test_a_transaction_that_another_process_keeps_out_gives_up_in_time_and_leaves_the_gate_free(store, path):
    job = await hold_one(store)
    with connected(path) as other:
        other.execute("begin immediate")
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            async with store.begin(job.lease, limit=LONG):
                pytest.fail("another holds the write lock")
        assert time.monotonic() - began < 2 * TIMEOUT
        other.execute("rollback")

    with nothing_lasts():
        async with store.begin(job.lease, limit=LONG):
            pass


# --- undone by SQLite ------------------------------------------------------------------------------------------------


UNDOING = {"by a statement": "insert or rollback into effect values ('there')", "by a trigger": "delete from effect"}


@pytest.fixture
def effects(store: SqliteBackend, path: Path):
    change(path, "create table effect (name text unique)")
    change(path, "insert into effect values ('there')")
    change(path, "create trigger kept before delete on effect begin select raise(rollback, 'kept'); end")
    return lambda: [name for (name,) in ask(path, "select name from effect order by rowid")]


@pytest.mark.parametrize("sql", UNDOING.values(), ids=UNDOING)
async def test_after_sqlite_has_rolled_back_by_itself_nothing_more_is_written_through_the_transaction(
    store, effects, sql
):
    job = await hold_one(store)
    with pytest.raises(StoreError, match="the store rolled the transaction back"):
        async with store.begin(job.lease, limit=LONG) as transaction:
            await transaction.connection.execute("insert into effect values ('before')")
            with pytest.raises(sqlite3.IntegrityError):
                await transaction.connection.execute(sql)
            with pytest.raises(StoreError, match="Nothing was written"):
                await transaction.connection.execute("insert into effect values ('after')")
            await transaction.complete(job.lease, None)

    assert effects() == ["there"]
    assert await store.jobs.verify(job.lease) is Standing.HELD


@pytest.mark.parametrize("sql", UNDOING.values(), ids=UNDOING)
async def test_a_thread_handlers_transaction_that_sqlite_has_rolled_back_is_over_too(store, effects, sql):
    job = await hold_one(store)

    def handle() -> None:
        with store.begin_blocking(job.lease, limit=LONG) as transaction:
            transaction.connection.execute("insert into effect values ('before')")
            with pytest.raises(sqlite3.IntegrityError):
                transaction.connection.execute(sql)
            transaction.connection.executemany("insert into effect values (?)", [("after",)])

    with pytest.raises(StoreError, match="the store rolled the transaction back"):
        await asyncio.to_thread(handle)

    assert effects() == ["there"]


async def test_a_handler_that_keeps_silent_about_the_rollback_cannot_commit(store, effects):
    job = await hold_one(store)
    with pytest.raises(StoreError, match="the store rolled the transaction back"):
        async with store.begin(job.lease, limit=LONG) as transaction:
            await transaction.connection.execute("insert into effect values ('before')")
            with contextlib.suppress(sqlite3.IntegrityError):
                await transaction.connection.execute("delete from effect")

    assert effects() == ["there"]


async def test_a_transaction_undone_by_sqlite_lets_the_next_writer_through_at_once_and_only_one(store, effects):
    job, other = await hold_one(store), await hold_one(store)
    gate = store._parts.here.gate
    with pytest.raises(StoreError):
        async with store.begin(job.lease, limit=LONG) as transaction:
            with contextlib.suppress(sqlite3.IntegrityError):
                await transaction.connection.execute("delete from effect")
            with nothing_lasts():
                await asyncio.create_task(_effect_of(store, other, "other"))

    assert effects() == ["there", "other"]
    assert not gate._is_taken
    gate.enter()
    assert gate._is_taken, "left twice, it would let two writers through"
    gate.leave()


async def _effect_of(store: SqliteBackend, job, name: str) -> None:
    async with store.begin(job.lease, limit=LONG) as transaction:
        await transaction.connection.execute("insert into effect values (?)", (name,))


# --- past its limit --------------------------------------------------------------------------------------------------


async def test_the_limit_of_a_transaction_holds_though_the_event_loop_is_blocked_from_its_beginning(store, path):
    job = await hold_one(store)

    async def handle() -> None:
        async with store.begin(job.lease, limit=SHORT):
            pass

    handling = asyncio.create_task(handle())
    await asyncio.sleep(0)
    with connected(path) as other:  # from here on the loop is blocked
        other.execute("pragma busy_timeout = 0")
        give_up = time.monotonic() + SOON
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            while time.monotonic() < give_up:
                other.execute("begin immediate")
                other.execute("rollback")
        other.execute("pragma busy_timeout = 2000")
        other.execute("begin immediate")  # the lock was freed, though the handler has not even heard that it had it
        other.execute("rollback")

    with pytest.raises(TransactionExpired):
        await handling


async def test_the_rollback_of_an_expired_transaction_comes_before_what_its_session_does_next(store, monkeypatch):
    first, second = await hold_one(store), await hold_one(store)
    is_expiring, next_is_asked = threading.Event(), threading.Event()
    real = Connection.interrupt

    def slow(session: Connection) -> None:
        is_expiring.set()
        next_is_asked.wait(0.3)
        real(session)

    monkeypatch.setattr(Connection, "interrupt", slow)

    async def follow() -> None:
        async with store.begin(second.lease, limit=LONG):
            pass

    with pytest.raises(TransactionExpired):
        async with store.begin(first.lease, limit=SHORT):
            assert await asyncio.to_thread(is_expiring.wait, SOON)
    following = asyncio.create_task(follow())
    await asyncio.sleep(0)
    next_is_asked.set()
    with nothing_lasts():
        await following


@pytest.mark.parametrize("how", ["expired", "undone"])
async def test_an_enqueue_inside_a_transaction_that_is_over_is_refused_and_not_committed_alone(store, effects, how):
    job, late, after = await hold_one(store), a_job(), a_job()
    error = TransactionExpired if how == "expired" else StoreError
    with pytest.raises(error):
        async with store.begin(job.lease, limit=SHORT if how == "expired" else LONG) as transaction:
            if how == "undone":
                with contextlib.suppress(sqlite3.IntegrityError):
                    await transaction.connection.execute("delete from effect")
            else:
                await _until_expired(transaction)
            await store.jobs.enqueue([late])

    assert await enqueue(store, after) == [after.id]
    assert await store.insight.find(late.id, 1) == []


async def _until_expired(transaction) -> None:
    with pytest.raises(TransactionExpired):
        while True:
            await transaction.connection.execute("select 1")


# --- the store is closed meanwhile ------------------------------------------------------------------------------------


async def test_a_thread_that_is_stuck_in_a_transaction_lets_go_of_the_write_lock_when_the_store_is_closed(store, path):
    lease = (await hold_one(store)).lease
    is_inside, goes_on = threading.Event(), threading.Event()

    def stuck() -> None:
        with store.begin_blocking(lease, limit=LONG) as transaction:
            is_inside.set()
            goes_on.wait(SOON)
            transaction.connection.execute("select 1")

    running = asyncio.create_task(asyncio.to_thread(stuck))
    assert await asyncio.to_thread(is_inside.wait, SOON)
    await store.close()

    with contextlib.closing(sqlite3.connect(path, timeout=SOON / 2, isolation_level=None)) as other:
        other.execute("begin immediate")
        other.execute("rollback")
    goes_on.set()
    with pytest.raises(TransactionExpired):
        await running
    deadline = time.monotonic() + SOON
    while any(file.path.startswith(str(path)) for file in psutil.Process().open_files()):
        assert time.monotonic() < deadline, "its connection was kept"
        await asyncio.sleep(0.01)
