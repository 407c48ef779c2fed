"""Installation, migrations and privileges: what a database needs before its first job."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from tests.servers import mysql

from holdfast.backends.mysql.backend import open_backend as open_mysql
from holdfast.errors import PrivilegeMissing, SchemaMismatch, StoreUnavailable
from holdfast.store.values import Verdict
from holdfast.testing.conformance.base import OUTCOMES, a_job, claim, enqueue, finish, hold_one
from holdfast.testing.stores import open_store


async def test_a_migration_that_waits_for_an_open_transaction_gives_up_and_leaves_no_lock_behind(
    flavour: mysql.Flavour, monkeypatch: pytest.MonkeyPatch
):
    """While it waits for the metadata lock, all other statements on the table queue behind it."""
    lock = "concat('holdfast ', left(sha2(database(), 256), 40))"
    with mysql.own_database(flavour) as url:
        async with open_store(url) as backend:
            schema: Any = backend.schema
            monkeypatch.setattr(
                schema, "_migrations", {**schema._migrations, 99: "alter table holdfast_job add more int"}
            )
            reader = mysql.connect(url, autocommit=False)
            try:
                with reader.cursor() as cursor:
                    cursor.execute("select count(*) from holdfast_job")
                upgrade = asyncio.create_task(schema.install())
                look = "select 1 from information_schema.processlist where state like '%metadata lock%'"
                while not mysql.run(url, look):  # noqa: ASYNC110 - the server notifies no client
                    await asyncio.sleep(0.01)
                await enqueue(backend, a_job())
                with pytest.raises(StoreUnavailable, match="waited too long"):
                    await upgrade
            finally:
                reader.close()
            async with asyncio.timeout(5):
                while mysql.run(url, f"select is_free_lock({lock})") != [(1,)]:  # noqa: ASYNC110 - until its session has ended
                    await asyncio.sleep(0.01)
            assert await schema.install() == 99


@pytest.mark.slow
async def test_a_wait_for_another_installation_ends_before_its_reply_is_overdue(flavour: mysql.Flavour):
    with mysql.own_database(flavour) as url:
        other = mysql.connect(url)
        with closing(other), other.cursor() as cursor:
            cursor.execute("select get_lock(concat('holdfast ', left(sha2(database(), 256), 40)), 0)")
            backend = open_mysql(f"{url}?reply_timeout=3")
            with pytest.raises(StoreUnavailable, match="another process is installing"):
                await backend.open()
            await backend.close()


async def test_a_database_without_our_tables_is_installed_only_if_the_url_allows_it(flavour: mysql.Flavour):
    with mysql.own_database(flavour) as url:
        backend = open_mysql(f"{url}?install=never")
        with pytest.raises(SchemaMismatch, match="schema install"):
            await backend.open()
        await backend.close()


async def test_several_processes_may_install_at_once_and_half_an_installation_is_completed(
    flavour: mysql.Flavour,
):
    with mysql.own_database(flavour) as url:
        text = open_mysql(url).schema.script()
        mysql.run(url, text.partition("create table if not exists holdfast_job")[0])
        backends = [open_mysql(url) for _ in range(4)]
        await asyncio.gather(*(backend.open() for backend in backends))
        await enqueue(backends[0], a_job())
        assert len(await claim(backends[3])) == 1
        for backend in backends:
            await backend.close()


class TestPrivileges:
    """What a user may do, and what the errors say."""

    @pytest.fixture
    def plain_url(self, url: str) -> Iterator[str]:
        name = url.rpartition("/")[2]
        host = "'127.0.0.1'"
        user = f"u_{name[-8:]}"
        mysql.run(url, f"create user {user}@{host}", f"grant select on {name}.* to {user}@{host}")
        yield url.replace("root@", f"{user}@")
        mysql.run(url, f"drop user {user}@{host}")

    async def test_a_missing_privilege_is_named_with_its_grant(self, plain_url: str):
        backend = open_mysql(plain_url)
        await backend.open()
        with pytest.raises(PrivilegeMissing, match="grant select, insert, update, delete"):
            await backend.jobs.enqueue([a_job()])
        await backend.close()

    async def test_a_callers_missing_privilege_is_named_with_its_grant(self, url: str, plain_url: str):
        name = url.rpartition("/")[2]
        backend = open_mysql(url)
        await backend.open()
        named = pytest.raises(PrivilegeMissing, match=rf"delete on {name}\.\* to")
        with closing(mysql.connect(plain_url, autocommit=False)) as caller, named:
            await backend.join(caller).enqueue([a_job()])
        await backend.close()

    async def test_four_privileges_are_enough_for_a_worker(self, url: str, plain_url: str):
        user = plain_url.removeprefix("mysql://").partition("@")[0]
        name = url.rpartition("/")[2]
        mysql.run(url, f"grant insert, update, delete on {name}.* to {user}@'127.0.0.1'")
        backend = open_mysql(plain_url)
        await backend.open()
        job = await hold_one(backend)
        assert await finish(backend, job.lease, OUTCOMES["completed"]) is Verdict.DONE
        await backend.close()
