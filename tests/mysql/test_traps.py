"""What these servers do differently from what one expects: one test for each trap."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.servers import mysql

from holdfast.backends.mysql import driver
from holdfast.backends.mysql.backend import MysqlBackend
from holdfast.backends.sql.steps import run
from holdfast.errors import ConfigError, StoreError, StoreUnavailable, TransactionExpired
from holdfast.model.event import NewEvent
from holdfast.model.ids import new_id
from holdfast.model.job import JobState
from holdfast.model.outcome import Completed
from holdfast.store.steps import Steps
from holdfast.store.values import Finish, Verdict
from holdfast.testing.conformance.base import a_job, claim, enqueue, hold_one, in_extender, state_of
from holdfast.testing.stores import open_store

SHORT = timedelta(seconds=1)


async def test_a_job_whose_stale_lease_is_given_with_its_current_one_is_completed_once(backend: MysqlBackend):
    stale = await hold_one(backend)
    await backend.jobs.release([stale.lease], started=False)
    (current,) = await claim(backend)
    both = [Finish(stale.lease, Completed('"old"')), Finish(current.lease, Completed('"new"'))]
    assert await backend.jobs.finish(both) == [Verdict.LOST, Verdict.DONE]


async def test_of_two_enqueues_that_wait_for_the_insert_of_their_id_one_makes_the_job(backend: MysqlBackend, url: str):
    """The server may give one of them up in a deadlock when the insert is rolled back: it is repeated."""
    job = a_job()
    other = mysql.connect(url)
    try:
        other.begin()
        assert await backend.join(other).enqueue([job]) == [True]
        waiting = [asyncio.create_task(backend.jobs.enqueue([job])) for _ in range(3)]
        name = url.rpartition("/")[2]
        waits = (
            "select count(*) from information_schema.innodb_trx straight_join information_schema.processlist"  # noqa: S608
            f" on id = trx_mysql_thread_id where db = '{name}' and trx_state = 'LOCK WAIT'"
        )
        async with asyncio.timeout(20):
            while mysql.run(url, waits) != [(3,)]:  # noqa: ASYNC110 - the server notifies no client
                await asyncio.sleep(0.15)  # MariaDB does not refresh this list if it was read less than 0.1 s ago
        assert not any(task.done() for task in waiting)
        other.rollback()
        made = await asyncio.gather(*waiting)
    finally:
        other.close()
    assert [answer[0] for answer in made].count(True) == 1


async def test_a_statement_that_is_killed_leaves_nothing_of_its_verb(backend: MysqlBackend, url: str):
    """KILL QUERY ends the statement, and the transaction goes on."""
    job = await hold_one(backend)
    locker = mysql.connect(url)

    def verb() -> Steps[None]:
        yield from run("set_turns", seq=job.seq, turn=-7)
        yield from run("leave_running", seq=job.seq)

    try:
        locker.begin()
        with locker.cursor() as cursor:
            cursor.execute("select * from holdfast_running for update")
        waiting = asyncio.ensure_future(backend._parts.here.runner.write(verb))
        name = url.rpartition("/")[2]
        look = f"select id from information_schema.processlist where db = '{name}' and info like 'delete%'"  # noqa: S608
        while not (found := mysql.run(url, look)):  # noqa: ASYNC110 - the server notifies no client
            await asyncio.sleep(0.01)
        mysql.run(url, f"kill query {found[0][0]}")
        with pytest.raises(StoreUnavailable):
            await waiting
    finally:
        locker.close()
    assert mysql.run(url, "select count(*) from holdfast_job where turn = -7") == [(0,)]
    assert await state_of(backend, job.id) is JobState.RUNNING


async def test_names_that_differ_in_trailing_spaces_and_case_are_different(backend: MysqlBackend):
    keys = ["a", "a ", "A", "ä"]
    await enqueue(backend, *(msgspec.structs.replace(a_job(), order_key=key) for key in keys))
    assert len(await claim(backend, 10)) == len(keys)
    events = [NewEvent(id=new_id(), category="c", stream=key, name="n", payload="1") for key in keys]
    assert [one.version for one in await backend.streams.events.append(events)] == [1] * len(keys)


async def test_where_messages_of_several_statements_are_not_allowed_they_go_one_by_one(
    backend: MysqlBackend, monkeypatch: pytest.MonkeyPatch
):
    """As through a proxy that does not offer them."""
    monkeypatch.setattr(driver, "CLIENT", SimpleNamespace(MULTI_STATEMENTS=1 << 62))
    job = await hold_one(backend)
    stale = Finish(msgspec.structs.replace(job.lease, fence=job.fence + 1), Completed(None))
    assert await backend.jobs.finish([stale]) == [Verdict.LOST]
    assert await state_of(backend, job.id) is JobState.RUNNING
    assert await backend.jobs.finish([Finish(job.lease, Completed(None))]) == [Verdict.DONE]
    event = NewEvent(id=new_id(), category="c", stream="s", name="n", payload="1")
    assert [one.version for one in await backend.streams.events.append([event])] == [1]
    held = await hold_one(backend)
    async with backend.begin(held.lease, limit=SHORT) as transaction:
        assert await transaction.complete(held.lease, '"done"') is Verdict.DONE
    assert await in_extender(backend, lambda extender: extender.cancel_asked("worker")) == []
    assert await state_of(backend, held.id) is JobState.COMPLETED


async def test_a_proxy_that_changes_sessions_between_transactions_changes_no_isolation(
    backend: MysqlBackend, monkeypatch: pytest.MonkeyPatch
):
    """As ProxySQL may: the session of a transaction need not be the one that was set up."""
    job = await hold_one(backend)
    monkeypatch.setattr(driver, "CLIENT", SimpleNamespace(MULTI_STATEMENTS=1 << 62))
    begun: list[list[str]] = []

    def recorded(kind: Any) -> None:
        ask = kind._ask

        def record(self: Any, text: str) -> Any:
            last.append(text)
            if text == driver.BEGIN:
                begun.append(last[-3:])
            return ask(self, text)

        last: list[str] = []
        monkeypatch.setattr(kind, "_ask", record)

    recorded(driver.VerbConnection)
    recorded(driver.BlockingConnection)
    await backend.jobs.enqueue([a_job()])
    async with backend.begin(job.lease, limit=SHORT):
        pass
    await in_extender(backend, lambda extender: extender.extend([job.lease], SHORT))
    isolation = "set transaction isolation level read committed"
    assert len(begun) >= 3
    assert [texts for texts in begun if isolation not in texts] == []
    begun.clear()
    async with backend.begin(job.lease, limit=SHORT, isolation="serializable"):
        pass
    assert [text for text in begun[-1] if text.startswith("set transaction")] == [
        isolation.replace("read committed", "serializable")
    ]


async def test_a_session_that_stops_in_the_middle_of_a_statement_is_ended_by_the_server(
    backend: MysqlBackend, url: str
):
    """As one between statements is."""
    job = await hold_one(backend)
    async with asyncio.timeout(30):
        with pytest.raises((TransactionExpired, StoreUnavailable)):  # noqa: PT012
            async with backend.begin(job.lease, limit=SHORT) as transaction:
                transaction.cancel_timer()  # type: ignore[attr-defined]  # as if this process were frozen
                transaction.connection._transport.write(b"\x64\x00\x00\x00\x03select ")  # 8 of 100 bytes
                while not mysql.run(url, "select seq from holdfast_running for update skip locked"):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
                await transaction.complete(job.lease, None)
    assert await state_of(backend, job.id) is JobState.RUNNING


HOLDER = """
import asyncio, sys
from datetime import timedelta
from holdfast.app.open import open_backend
from holdfast.testing.conformance.base import claim

async def main():
    backend = open_backend(sys.argv[1])
    await backend.open()
    (job,) = await claim(backend, lease=timedelta(seconds=3))
    async with backend.begin(job.lease, limit=timedelta(seconds=1)):
        print("locked", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.slow
async def test_the_job_of_a_process_that_is_stopped_inside_its_transaction_is_rescued(backend: MysqlBackend, url: str):
    """Within the lease and the limit of the transaction."""
    (job_id,) = await enqueue(backend, a_job())
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDER, url, stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"locked\n"
        os.kill(process.pid, signal.SIGSTOP)
        async with asyncio.timeout(15):
            while not await backend.jobs.rescue(None, 10):  # noqa: ASYNC110 - the server notifies no client
                await asyncio.sleep(0.1)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    assert await state_of(backend, job_id) is JobState.READY


@pytest.mark.slow
@pytest.mark.parametrize("version", ["8.0.11-TiDB-v8.5.0", "8.0.33-Dolt", "8.0.30-Vitess", "10.5.9-MariaDB"])
def test_a_server_whose_version_is_not_supported_is_refused(version: str):
    with mysql.own_server(version=version) as server:
        mysql.run(server.url, "create database shop")
        with pytest.raises(ConfigError, match=r"cannot hold a store|needs at least"):
            asyncio.run(_open(server.url + "shop"))


async def _open(url: str) -> None:
    async with open_store(url):
        pass


@pytest.mark.slow
async def test_a_binary_log_of_statements_is_refused_with_its_remedy(flavour: mysql.Flavour):
    with mysql.own_server(flavour, log_bin="log", server_id="7", binlog_format="STATEMENT") as server:
        mysql.run(server.url, "create database shop")
        with pytest.raises(StoreError, match="binlog_format"):
            async with open_store(server.url + "shop") as backend:
                await backend.jobs.enqueue([a_job()])


@pytest.mark.slow
async def test_numbers_that_grow_in_steps_are_those_of_the_rows(flavour: mysql.Flavour):
    with mysql.own_server(flavour, auto_increment_increment="3", auto_increment_offset="2") as server:
        mysql.run(server.url, "create database shop")
        async with open_store(server.url + "shop") as backend:
            jobs = [a_job() for _ in range(50)]
            keyed = [msgspec.structs.replace(a_job(), order_key=str(number)) for number in range(50)]
            later = [msgspec.structs.replace(a_job(), delay=timedelta(hours=1)) for _ in range(50)]
            await asyncio.gather(*(backend.jobs.enqueue(each) for each in (jobs, keyed, later)))
            leased: list[Any] = await claim(backend, 200)
            assert {job.id for job in leased} == {job.id for job in [*jobs, *keyed]}
            assert {await state_of(backend, job.id) for job in later} == {JobState.SCHEDULED}
            finishes = [Finish(job.lease, Completed(None)) for job in leased]
            assert set(await backend.jobs.finish(finishes)) == {Verdict.DONE}
