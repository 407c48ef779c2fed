"""Broken connections, lost replies, servers that refuse to write, and settings of other people."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, cast

import msgspec
import pymysql
import pytest
from tests.servers import mysql

from holdfast.backends.mysql.backend import MysqlBackend
from holdfast.backends.mysql.connecting import connect_blocking
from holdfast.backends.mysql.driver import VerbConnection, drop
from holdfast.backends.mysql.error_map import is_read_only
from holdfast.backends.mysql.location import MysqlLocation
from holdfast.backends.mysql.pool import ask_beside, beside_pool
from holdfast.errors import (
    LeaseLost,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
    TransactionExpired,
)
from holdfast.model.event import NewEvent
from holdfast.model.ids import new_id
from holdfast.model.job import JobState, Lease
from holdfast.model.outcome import Completed
from holdfast.store.values import Finish, Standing, Verdict
from holdfast.testing.conformance.base import OUTCOMES, a_job, claim, enqueue, finish, hold_one, in_extender, state_of
from holdfast.testing.stores import open_store

LIMIT = timedelta(seconds=20)


def end_sessions(url: str, *, but: int = 0) -> None:
    """End all sessions in a database, as an administrator or a failover does."""
    name = url.rpartition("/")[2]
    for (number,) in mysql.run(url, f"select id from information_schema.processlist where db = '{name}'"):  # noqa: S608
        if number != but:
            with suppress(pymysql.MySQLError):  # it may have ended meanwhile, as that of the list has
                mysql.run(url, f"kill {number}")


async def test_idle_connections_that_the_server_has_ended_are_replaced_without_an_error(
    backend: MysqlBackend, url: str
):
    await enqueue(backend, a_job())
    for _ in range(3):
        end_sessions(url)
        await asyncio.sleep(0.05)  # until the end of the sessions has arrived here
        await enqueue(backend, a_job())
    assert len(await claim(backend)) == 4


async def test_after_a_broken_connection_changes_are_looked_for_on_a_new_one(backend: MysqlBackend, url: str):
    """The name of the server may lead to another one after a failover, while the old one still answers."""
    name = url.rpartition("/")[2]
    looking = f"select id from information_schema.processlist where db = '{name}'"  # noqa: S608
    stop = backend.notifier.listen(lambda: None)
    try:
        async with asyncio.timeout(20):
            before = mysql.run(url, looking)
            while not await backend.insight.facts() or len(before) < 3:  # the list, a verb, and the look for changes
                before = mysql.run(url, looking)
                await asyncio.sleep(0.05)
            backend._parts.here._drop_idle()
            while set(mysql.run(url, looking)) & set(before):  # noqa: ASYNC110 - the server notifies no client
                await asyncio.sleep(0.05)
    finally:
        stop()


async def test_a_commit_whose_reply_is_lost_is_reported_as_unknown_and_a_look_shows_the_outcome(
    backend: MysqlBackend, monkeypatch: pytest.MonkeyPatch
):
    job = await hold_one(backend)
    ask = VerbConnection.ask

    async def lose(self: VerbConnection, texts: list[str]) -> Any:
        answers = await ask(self, texts)
        if texts[-1] == "commit":
            drop(self)
            await self.ask(["select 1"])
        return answers

    with monkeypatch.context() as patched:
        patched.setattr(VerbConnection, "ask", lose)
        with pytest.raises(OutcomeUnknown):
            await backend.jobs.finish([Finish(job.lease, Completed(None))])
    assert await backend.jobs.verify(job.lease) is Standing.COMPLETED
    assert await finish(backend, job.lease, Completed(None)) is Verdict.DONE


async def test_a_link_that_breaks_before_the_commit_leaves_nothing(
    backend: MysqlBackend, monkeypatch: pytest.MonkeyPatch
):
    job = await hold_one(backend)
    ask = VerbConnection.ask

    async def lose(self: VerbConnection, texts: list[str]) -> Any:
        if texts == ["commit"]:
            drop(self)
        return await ask(self, texts)

    with monkeypatch.context() as patched:
        patched.setattr(VerbConnection, "ask", lose)
        with pytest.raises(OutcomeUnknown):  # from here it looks the same
            await finish(backend, job.lease, OUTCOMES["retried"])
    assert await backend.jobs.verify(job.lease) is Standing.HELD
    assert await finish(backend, job.lease, OUTCOMES["retried"]) is Verdict.DONE


async def test_a_handler_whose_session_is_ended_writes_nothing_and_its_lease_is_not_completed(
    backend: MysqlBackend, url: str
):
    mysql.run(url, "create table effect (x int) engine = innodb")
    job = await hold_one(backend)
    with pytest.raises(StoreUnavailable):  # noqa: PT012
        async with backend.begin(job.lease, limit=LIMIT) as transaction, transaction.connection.cursor() as cursor:
            await cursor.execute("insert into effect values (1)")
            end_sessions(url)
            await cursor.execute("insert into effect values (2)")
    assert mysql.run(url, "select count(*) from effect") == [(0,)]
    assert await state_of(backend, job.id) is JobState.RUNNING


async def test_a_silent_handler_is_ended_by_the_server_itself(backend: MysqlBackend, url: str):
    """A frozen process cannot roll back: the session that it holds is silent for longer than its limit."""
    job = await hold_one(backend)
    async with asyncio.timeout(30):
        with pytest.raises((TransactionExpired, StoreUnavailable)):  # noqa: PT012
            async with backend.begin(job.lease, limit=timedelta(seconds=1)) as transaction:
                transaction.cancel_timer()  # type: ignore[attr-defined]  # as if this process were frozen
                while not mysql.run(url, "select seq from holdfast_running for update skip locked"):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
                await transaction.complete(job.lease, None)
    assert await state_of(backend, job.id) is JobState.RUNNING


async def test_a_statement_of_a_handler_in_a_thread_may_take_longer_than_a_reply_to_a_verb(url: str):
    backend = MysqlBackend(msgspec.structs.replace(MysqlLocation.parse(url), reply_timeout=1.0), None)
    await backend.open()
    job = await hold_one(backend)

    def handle() -> None:
        with backend.begin_blocking(job.lease, limit=LIMIT) as transaction:
            transaction.connection.execute("select sleep(2.5)")
            transaction.complete(job.lease, None)

    await asyncio.to_thread(handle)
    assert await state_of(backend, job.id) is JobState.COMPLETED
    await backend.close()


async def test_the_extender_survives_the_end_of_its_session(backend: MysqlBackend, url: str):
    job = await hold_one(backend)

    def extend(extender: Any) -> Any:
        end_sessions(url)
        return extender.extend([job.lease], timedelta(seconds=30))

    extension = await in_extender(backend, extend)
    assert (extension.lost, extension.skipped) == ([], [])


async def test_a_lease_that_another_fence_holds_is_refused_in_a_transaction(backend: MysqlBackend):
    job = await hold_one(backend)
    assert await backend.jobs.release([job.lease], started=False) == [Verdict.DONE]
    with pytest.raises(LeaseLost):
        async with backend.begin(job.lease, limit=LIMIT):
            pass


@pytest.mark.parametrize(("option", "expected"), [("super-read-only", True), ("secure-file-priv", False)])
def test_an_option_that_prevents_a_statement_of_a_handler_is_not_always_that_of_a_replica(option: str, expected: bool):
    text = f"The MySQL server is running with the --{option} option so it cannot execute this statement"
    assert is_read_only(pymysql.OperationalError(1290, text)) is expected


@pytest.mark.slow
class TestServersOfOthers:
    """Settings of an administrator that are not ours."""

    @pytest.fixture
    def server(self, flavour: mysql.Flavour, monkeypatch: pytest.MonkeyPatch) -> Iterator[mysql.MysqlServer]:
        monkeypatch.setenv("TZ", "EAST-09:00")
        with mysql.own_server(
            flavour,
            sql_mode="ANSI_QUOTES,NO_BACKSLASH_ESCAPES,ONLY_FULL_GROUP_BY,PIPES_AS_CONCAT",
            default_time_zone="-03:30",
            character_set_server="latin1",
            max_allowed_packet="1M",
            transaction_isolation="SERIALIZABLE",
            lower_case_table_names="1",
            **{"max_statement_time" if flavour == "mariadb" else "max_execution_time": "1000"},
        ) as server:
            yield server

    async def test_foreign_modes_zones_collations_and_small_packets_do_not_matter(self, server: mysql.MysqlServer):
        mysql.run(server.url, "create database shop character set latin1 collate latin1_german1_ci")
        async with open_store(server.url + "shop") as backend:
            jobs = [a_job(payload=f'"größe 🙂 {number} {"数" * 1400}"') for number in range(1500)]
            assert all(await backend.jobs.enqueue(jobs))
            leased = [job for _ in range(3) for job in await claim(backend, 1500)]  # in parts of 4 MB
            assert sorted(job.payload for job in leased) == sorted(job.payload for job in jobs)
            await backend.jobs.finish([Finish(job.lease, Completed('"ok"')) for job in leased[:700]])
            await backend.jobs.finish([Finish(job.lease, Completed(None)) for job in leased[700:]])
            event = NewEvent(id=new_id(), category="c", stream="Größe ", name="n", payload='"🙂"')
            other = NewEvent(id=new_id(), category="c", stream="größe", name="n", payload="1")
            appended = await backend.streams.events.append([event, other])
            assert [one.version for one in appended] == [1, 1]
            (stored,) = await backend.streams.events.read_stream("c", "Größe ", limit=5)
            assert stored.payload == '"🙂"'
            many = [
                NewEvent(id=new_id(), category="c", stream=str(number), name="n", payload=f'"{"x" * 10_000}"')
                for number in range(300)
            ]
            caller = mysql.connect(server.url + "shop", autocommit=False)
            assert all(one.is_new for one in await backend.streams.join(caller).append(many))
            assert 0 <= int((await backend.insight.facts())["oldest_transaction"]) < 60
            caller.commit()
            caller.close()

    async def test_an_administrators_limit_on_the_time_of_a_statement_does_not_end_ours(
        self, server: mysql.MysqlServer, flavour: mysql.Flavour
    ):
        name = "max_statement_time" if flavour == "mariadb" else "max_execution_time"
        texts = [f"select @@global.{name}", f"select @@session.{name}"]
        connection = connect_blocking(MysqlLocation.parse(server.url + "mysql"))
        found = [result.rows for result in connection.ask(texts)]
        drop(connection)
        assert [rows[0][0] > 0 for rows in found if rows] == [True, False]

    async def test_a_payload_that_the_server_refuses_is_named_with_the_remedy(self, server: mysql.MysqlServer):
        mysql.run(server.url, "create database shop")
        async with open_store(server.url + "shop") as backend:
            for length in (
                1_200_000,
                30_000_000,
            ):  # the server would break the connection
                with pytest.raises(StoreError, match="raise its max_allowed_packet"):
                    await backend.jobs.enqueue([a_job(payload='"' + "x" * length + '"')])
            job = await hold_one(backend)
            with pytest.raises(StoreError, match="raise its max_allowed_packet"):
                await backend.jobs.finish([Finish(job.lease, Completed('"' + "ä" * 600_000 + '"'))])
            assert await finish(backend, job.lease, Completed('"ok"')) is Verdict.DONE
            caller = mysql.connect(server.url + "shop", autocommit=False)
            using = cast("MysqlBackend", backend).join(caller)
            with pytest.raises(StoreError, match="raise its max_allowed_packet"):  # half as long, but for the quotes
                await using.enqueue([a_job(payload="'" * 600_000)])
            assert await using.enqueue([a_job()]) == [True]
            caller.close()

    async def test_a_server_that_becomes_read_only_is_reported_and_left_when_it_writes_again(
        self, server: mysql.MysqlServer
    ):
        mysql.run(
            server.url,
            "create database shop",
            "create user plain@'127.0.0.1'",
            "grant select, insert, update, delete, create, alter, drop, index on shop.* to plain@'127.0.0.1'",
        )
        url = server.url.replace("root@", "plain@") + "shop"
        async with open_store(url) as opened:
            backend: Any = opened
            await enqueue(backend, a_job(), a_job())
            first, second = [one.lease for one in await claim(backend)]
            seen = await self.sessions_of_handlers(backend, first)
            with self.read_only(server), pytest.raises(StoreUnavailable, match="read-only"):
                await backend.jobs.enqueue([a_job()])
            seen += await self.sessions_of_handlers(backend, first)
            with pytest.raises(StoreUnavailable, match="read-only"):  # noqa: PT012
                async with backend.begin(first, limit=LIMIT) as transaction:
                    with self.read_only(server):
                        await transaction.connection.execute("delete from holdfast_running")
            seen += await self.sessions_of_handlers(backend, first)
            with pytest.raises(StoreUnavailable, match="read-only"):  # noqa: PT012
                async with backend.begin(first, limit=LIMIT) as transaction:
                    with self.read_only(server):
                        await transaction.complete(first, None)
            seen += await self.sessions_of_handlers(backend, first)
            with self.read_only(server), pytest.raises(StoreUnavailable, match="read-only"):
                await asyncio.to_thread(self.complete_blocking, backend, first)
            seen += await self.sessions_of_handlers(backend, first)
            assert len(set(seen)) == 10
            await asyncio.to_thread(self.complete_blocking, backend, first)
            assert await finish(backend, second, Completed(None)) is Verdict.DONE
            await enqueue(backend, a_job())
            assert (await backend.insight.facts())["oldest_transaction"].startswith("unknown")

    @staticmethod
    @contextmanager
    def read_only(server: mysql.MysqlServer) -> Iterator[None]:
        mysql.run(server.url, "set global read_only = on")
        try:
            yield
        finally:
            mysql.run(server.url, "set global read_only = off")

    @staticmethod
    async def sessions_of_handlers(backend: Any, lease: Lease) -> list[int]:
        """Return the sessions that an async handler and one in a thread get."""
        look = "select connection_id()"

        def of_thread() -> Any:
            with backend.begin_blocking(lease, limit=LIMIT) as transaction:
                return transaction.connection.execute(look).fetchone()

        async with backend.begin(lease, limit=LIMIT) as transaction:
            row = await (await transaction.connection.execute(look)).fetchone()
        return [*row, *(await asyncio.to_thread(of_thread))]

    @staticmethod
    def complete_blocking(backend: Any, lease: Lease) -> None:
        with backend.begin_blocking(lease, limit=LIMIT) as transaction:
            transaction.complete(lease, None)

    async def test_a_crash_loses_no_acknowledged_job_and_no_fence_returns(self, server: mysql.MysqlServer):
        mysql.run(server.url, "set global innodb_flush_log_at_trx_commit = 1", "create database shop")
        async with open_store(server.url + "shop") as backend:
            ids = await enqueue(backend, *(a_job() for _ in range(20)))
            leased = await claim(backend, 10)
            await backend.jobs.release([job.lease for job in leased], started=False)
            mysql.run(server.url + "shop", "delete from holdfast_fence")
            server.kill()
            with pytest.raises(StoreUnavailable):
                await backend.jobs.enqueue([a_job()])
            server.start()
            again = await claim(backend, 100)
            assert {job.id for job in again} == set(ids)
            assert min(job.fence for job in again) > max(job.fence for job in leased)


def test_an_error_of_a_look_beside_a_transaction_names_the_store_and_not_an_outage(url: str):
    location = MysqlLocation.parse(url)
    pool = beside_pool(location)
    with pytest.raises(StoreError, match=f"^{url}") as caught:
        ask_beside(pool, url, ["select from"])
    assert not isinstance(caught.value, StoreUnavailable)
    pool.close()
