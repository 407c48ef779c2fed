"""The connection of an async handler: its transaction begins and ends with a statement, and is not its own to end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg.pq import Trace, TransactionStatus
from tests.servers.postgres import parts_of

from holdfast.backends.postgres.connecting import connect, drop
from holdfast.backends.postgres.location import PostgresLocation
from holdfast.backends.postgres.transaction_connection import HandlersConnection
from holdfast.errors import TransactionConflict
from holdfast.model.job import JobState, Lease, LeasedJob
from holdfast.model.outcome import Completed, Snoozed
from holdfast.store.backend import Backend
from holdfast.store.stream_values import Commit, CommitVerdict
from holdfast.store.values import Finish, Standing, Verdict
from holdfast.testing.conformance.base import MANY, a_job, claim, enqueue, finish, hold_one, state_of
from holdfast.testing.conformance.parents import after
from holdfast.testing.conformance.streams.base import consuming
from holdfast.testing.conformance.transactions import HandlerError

LIMIT = timedelta(seconds=20)
FAILING = b"select case when %(n)s::integer = 1 then 1 else ('no ' || %(n)s::text)::integer end"


@pytest.fixture
async def connection(url: str) -> AsyncIterator[HandlersConnection]:
    connection = await connect(PostgresLocation.parse(url))
    assert isinstance(connection, HandlersConnection)
    await connection.execute("create temporary table effect (n integer)")
    yield connection
    drop(connection)


async def effects(connection: HandlersConnection) -> int:
    found = await (await connection.execute("select count(*) from effect")).fetchone()
    assert found is not None
    return int(found[0])


async def test_statements_that_begin_and_end_a_transaction_return_their_rows(connection: HandlersConnection):
    assert await connection.begin_with(b"select %(n)s::integer", {"n": 7}) == [(7,)]
    assert connection.pgconn.transaction_status == TransactionStatus.INTRANS
    await connection.execute("insert into effect values (1)")
    assert await connection.commit_with(b"select %(n)s::integer", {"n": 8}) == [(8,)]
    assert connection.pgconn.transaction_status == TransactionStatus.IDLE
    assert await effects(connection) == 1


async def test_a_last_statement_that_fails_keeps_the_commit_from_being_done(connection: HandlersConnection):
    await connection.begin_with(b"select 1", {})
    await connection.execute("insert into effect values (1)")
    with pytest.raises(psycopg.errors.InvalidTextRepresentation, match="no 2"):
        await connection.commit_with(FAILING, {"n": 2})
    assert connection.pgconn.transaction_status == TransactionStatus.INERROR
    await connection.end(b"rollback")
    assert await effects(connection) == 0
    assert await connection.begin_with(FAILING, {"n": 1}) == [(1,)]


async def test_a_commit_that_the_server_has_turned_into_a_rollback_is_told(connection: HandlersConnection):
    await connection.begin_with(b"select 1", {})
    with pytest.raises(psycopg.errors.DivisionByZero):
        await connection.execute("select 1 / 0")
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        await connection.end(b"commit")
    assert connection.pgconn.transaction_status == TransactionStatus.IDLE


@contextmanager
def round_trips(session: HandlersConnection, path: Path) -> Iterator[Callable[[], int]]:
    """Count the replies that the session waits for inside the block; call what it yields after the block."""
    with path.open("wb") as said:
        session.pgconn.trace(said.fileno())
        session.pgconn.set_trace_flags(Trace.SUPPRESS_TIMESTAMPS)
        yield lambda: path.read_text().count("ReadyForQuery")
        session.pgconn.untrace()


async def test_it_takes_one_round_trip_to_begin_and_one_to_commit_a_position(backend: Backend, tmp_path: Path):
    grant = await consuming(backend, "a")
    async with backend.streams.consumers.begin(grant, limit=LIMIT) as transaction:
        session = transaction.connection  # the pool gives it out again
    with round_trips(session, tmp_path / "said") as counted:
        async with backend.streams.consumers.begin(grant, limit=LIMIT) as transaction:
            assert transaction.connection is session
            await session.execute("select 1")
            assert await transaction.commit(grant, Commit(0, 1)) is CommitVerdict.DONE
    assert counted() == 3  # with the handler's own


async def hold(backend: Backend, count: int, *, at_once: bool) -> list[Lease]:
    """Return the leases of one claim, or of a claim for each job: then each has another fence."""
    if not at_once:
        return [(await hold_one(backend)).lease for _ in range(count)]
    await enqueue(backend, *(a_job() for _ in range(count)))
    return [job.lease for job in await claim(backend, count)]


@pytest.mark.parametrize(("count", "at_once"), [(1, True), (3, True), (3, False)])
async def test_it_takes_one_round_trip_to_begin_and_one_to_complete_jobs(
    backend: Backend, tmp_path: Path, count: int, at_once: bool
):
    leases = await hold(backend, count, at_once=at_once)
    transactions = backend.transactions
    async with transactions.begin_many(leases, limit=LIMIT) as transaction:
        session = transaction.connection
    with round_trips(session, tmp_path / "said") as counted:
        opening = (
            transactions.begin(leases[0], limit=LIMIT) if count == 1 else transactions.begin_many(leases, limit=LIMIT)
        )
        async with opening as transaction:
            assert transaction.connection is session
            await session.execute("select 1")
            if count == 1:
                assert await transaction.complete(leases[0], None) is Verdict.DONE
            else:
                finishes = [Finish(lease, Completed()) for lease in leases]
                assert await transaction.finish(finishes) == [Verdict.DONE] * count
    assert counted() == 3  # with the handler's own; the statements are prepared on the way
    assert [await backend.jobs.verify(lease) for lease in leases] == [Standing.COMPLETED] * count


@pytest.mark.parametrize(
    ("ending", "blocking"),
    [(Completed(), False), (Completed("1"), False), (Snoozed(timedelta(0)), False), (Completed(), True)],
)
async def test_the_end_of_a_batch_finds_its_rows_by_index_whatever_the_planner_knows(
    backend: Backend, url: str, ending: Completed | Snoozed, blocking: bool
):
    """By a scan it would compare every row with every lease, and the server keeps such a plan."""
    await enqueue(backend, *(a_job() for _ in range(100)))
    leases = [job.lease for job in await claim(backend, 40)]
    finishes = [Finish(lease, Completed()) for lease in leases[1:]] + [Finish(leases[0], ending)]
    running = f"{parts_of(url)[1]}.running"
    # The scans of this transaction so far, all of which are counted when it has ended.
    look = f"select pg_stat_get_xact_numscans('{running}'::regclass), pg_stat_force_next_flush()".encode()

    def in_a_thread() -> int:
        with backend.transactions.begin_many_blocking(leases, limit=LIMIT) as transaction:
            so_far = transaction.connection.execute(look).fetchone()[0]
            assert set(transaction.finish(finishes)) == {Verdict.DONE}
        return int(so_far)

    async def in_the_loop() -> int:
        async with backend.transactions.begin_many(leases, limit=LIMIT) as transaction:
            so_far = (await (await transaction.connection.execute(look)).fetchone())[0]
            assert set(await transaction.finish(finishes)) == {Verdict.DONE}
        return int(so_far)

    with psycopg.connect(parts_of(url)[0], autocommit=True) as other:
        if other.info.server_version < 150_000:
            pytest.skip("the server cannot be told to write its counts")
        other.execute(f"vacuum analyze {running}".encode())  # so that it is known to be small
        before = scans(other, running)
        at_the_beginning = await (asyncio.to_thread(in_a_thread) if blocking else in_the_loop())
        assert scans(other, running) - before == at_the_beginning


def scans(connection: psycopg.Connection, table: str) -> int:
    found = connection.execute("select pg_stat_get_numscans(%s::regclass)", (table,)).fetchone()
    assert found is not None
    return int(found[0])


@pytest.mark.parametrize("at_once", [True, False])
async def test_the_leases_of_a_batch_that_are_still_held_are_told(backend: Backend, at_once: bool):
    first, *others = await hold(backend, 3, at_once=at_once)
    await finish(backend, first, Completed())
    async with backend.transactions.begin_many([*reversed(others), first], limit=LIMIT) as transaction:
        assert transaction.held == {(lease.seq, lease.fence) for lease in others}
        verdicts = await transaction.finish([Finish(lease, Completed()) for lease in others])
    assert verdicts == [Verdict.DONE] * 2


@pytest.mark.parametrize("joins", ["verb", "using"])
async def test_a_job_that_is_followed_since_its_transaction_began_is_completed_with_what_follows(
    backend: Backend, joins: str
):
    """The rows were locked before: only a verb in the same transaction can have changed that."""
    parent = await hold_one(backend)
    child = after(parent.id)
    async with backend.transactions.begin(parent.lease, limit=LIMIT) as transaction:
        verbs = backend.jobs if joins == "verb" else backend.transactions.join(transaction.connection)
        await verbs.enqueue([child])
        assert await transaction.complete(parent.lease, None) is Verdict.DONE
    assert transaction.concerns_children
    await backend.jobs.promote(MANY)
    assert await state_of(backend, child.id) is JobState.READY


@pytest.mark.parametrize("change", ["delete from {s}.running", "update {s}.running set fence = fence + 1000"])
@pytest.mark.parametrize(("many", "at_once"), [(False, True), (True, True), (True, False)])
async def test_a_lease_that_is_not_held_at_the_end_keeps_the_effect_from_being_committed(
    backend: Backend, url: str, change: str, many: bool, at_once: bool
):
    """The fence is checked by the statement that goes with the COMMIT, although its row is locked before."""
    leases = await hold(backend, 3, at_once=at_once)

    async def handler() -> None:
        async with backend.transactions.begin_many(leases, limit=LIMIT) as transaction:
            await transaction.connection.execute(change.format(s=parts_of(url)[1]).encode())
            if many:
                verdicts = await transaction.finish([Finish(lease, Completed()) for lease in leases])
                assert verdicts == [Verdict.LOST] * 3
            else:
                assert await transaction.complete(leases[0], None) is Verdict.LOST
            raise HandlerError

    with pytest.raises(HandlerError):
        await handler()
    assert [await backend.jobs.verify(lease) for lease in leases] == [Standing.HELD] * 3


async def test_prepared_statements_that_a_handler_has_dropped_are_a_conflict_once(backend: Backend):
    """The completion is sent together with the COMMIT: nothing is written, and the attempt is repeated."""
    for number in range(3):
        first, job = await hold_one(backend), await hold_one(backend)
        async with backend.transactions.begin(first.lease, limit=LIMIT) as transaction:
            assert await transaction.complete(first.lease, None) is Verdict.DONE

        async def handler(job: LeasedJob = job) -> None:
            async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
                await transaction.connection.execute("deallocate all")
                assert await transaction.complete(job.lease, None) is Verdict.DONE

        if number == 0:
            with pytest.raises(TransactionConflict):
                await handler()
            assert await backend.jobs.verify(job.lease) is Standing.HELD
        await handler()
        assert await backend.jobs.verify(job.lease) is Standing.COMPLETED


@pytest.mark.parametrize("what", ["commit", "rollback"])
async def test_a_handler_that_would_end_its_transaction_is_told_how_it_ends(backend: Backend, what: str):
    job = await hold_one(backend)
    async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
        with pytest.raises(psycopg.ProgrammingError, match="handlers must not call"):
            await getattr(transaction.connection, what)()
        assert await transaction.complete(job.lease, None) is Verdict.DONE


async def test_a_savepoint_that_is_rolled_back_takes_nothing_but_its_own_part_with_it(backend: Backend):
    """After a rollback the driver drops every prepared statement of the session."""
    grant = await consuming(backend, *"ab")
    for position in (0, 1):
        async with backend.streams.consumers.begin(grant, limit=LIMIT) as transaction:
            connection = transaction.connection
            for number in range(5):  # so often that the driver prepares it
                await connection.execute("select %s::integer", (number,))
            with pytest.raises(psycopg.errors.DivisionByZero):
                async with connection.transaction():
                    await connection.execute("select 1 / 0")
            assert await transaction.commit(grant, Commit(position, position + 1)) is CommitVerdict.DONE
    assert await backend.streams.consumers.verify(grant) == 2


async def test_a_pipeline_that_is_still_open_is_told(connection: HandlersConnection):
    await connection.begin_with(b"select 1", {})
    async with connection.pipeline():
        with pytest.raises(psycopg.ProgrammingError, match="pipeline"):
            await connection.commit_with(b"select 1", {})
    assert await connection.commit_with(b"select 2", {}) == [(2,)]


async def test_a_cancelled_statement_of_a_handler_is_cancelled_on_the_server_and_the_session_goes_on(
    connection: HandlersConnection,
):
    await connection.begin_with(b"select 1", {})
    async with connection.transaction():
        await connection.execute("insert into effect values (1)")
    began = asyncio.get_running_loop().time()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await connection.execute("select pg_sleep(60)")
    assert asyncio.get_running_loop().time() - began < 30
    assert connection.pgconn.transaction_status == TransactionStatus.INERROR
    await connection.end(b"rollback")
    assert await effects(connection) == 0


async def test_a_handler_may_copy_stream_and_use_a_pipeline(connection: HandlersConnection):
    """These wait for the server in other ways than a plain statement does."""
    await connection.begin_with(b"select 1", {})
    async with connection.cursor() as cursor:
        async with cursor.copy("copy effect from stdin") as copy:
            for number in range(10_000):
                await copy.write_row((number,))
        assert [row async for row in cursor.stream("select count(*) from effect")] == [(10_000,)]
        await cursor.executemany("insert into effect values (%s)", [(1,), (2,)])
    async with connection.pipeline():
        await connection.execute("insert into effect values (3)")
    await connection.execute("insert into effect select %s::integer + length(%s)", (1, "x" * 10_000_000))
    await connection.commit_with(b"select 1", {})
    assert await effects(connection) == 10_004


@pytest.mark.parametrize("prepare", ["auto", "always"])
@pytest.mark.parametrize("for_verbs", [True, False])
async def test_the_server_notices_a_client_that_vanished(url: str, for_verbs: bool, prepare: str):
    session = await connect(PostgresLocation.parse(f"{url}&prepare={prepare}"), for_verbs=for_verbs)
    found = await (await session.execute("show tcp_keepalives_idle")).fetchone()
    drop(session)
    assert found == ("10",)
