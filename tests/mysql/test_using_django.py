"""`using=` with Django's connections: over mysqlclient, or over PyMySQL in its place, where that is not installed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pymysql
import pymysql.constants
import pymysql.converters
import pymysql.cursors
import pytest
from django.db import connections, transaction
from tests.servers.django_settings import add_database, configure_django

from holdfast.backends.mysql.backend import MysqlBackend
from holdfast.errors import ConfigError
from holdfast.model.event import NewEvent
from holdfast.model.ids import new_id
from holdfast.model.job import JobState
from holdfast.store.values import Verdict
from holdfast.testing.conformance.base import a_job, hold_one, state_of

T = TypeVar("T")


def alias_of(url: str) -> str:
    """Make a database known to Django."""
    parts = urlsplit(url)
    name = parts.path.strip("/")
    place = {"HOST": str(parts.hostname), "PORT": str(parts.port), "USER": str(parts.username)}
    return add_database(name, ENGINE="django.db.backends.mysql", NAME=name, **place)


@pytest.fixture(scope="module", autouse=True)
def _driver() -> Iterator[None]:
    """Put PyMySQL in the place of mysqlclient, as its own `install_as_MySQLdb` does, if need be."""
    with pytest.MonkeyPatch.context() as patched:
        if find_spec("MySQLdb") is None:
            patched.setattr(pymysql, "version_info", (2, 2, 7, "final", 0))  # Django asks for it
            for name, module in {
                "MySQLdb": pymysql,
                "MySQLdb.constants": pymysql.constants,
                "MySQLdb.converters": pymysql.converters,
                "MySQLdb.cursors": pymysql.cursors,
            }.items():
                patched.setitem(sys.modules, name, module)
        yield


@pytest.fixture(scope="module", autouse=True)
def _configured(_driver: None) -> None:
    configure_django()


@pytest.mark.parametrize("commits", [True, False], ids=["committed", "rolled back"])
async def test_a_job_an_event_and_a_completion_share_an_atomic_block(backend: MysqlBackend, url: str, commits: bool):
    held, job = await hold_one(backend), a_job()
    event = NewEvent(id=new_id(), category="orders", stream="a 'quoted' %s", name="paid", payload="1")
    loop = asyncio.get_running_loop()

    def here(work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, loop).result(20)

    def work() -> None:
        alias = alias_of(url)
        try:
            with transaction.atomic(using=alias):
                using = connections[alias]
                assert here(backend.join(using).enqueue([job])) == [True]
                (appended,) = here(backend.streams.join(using).append([event]))
                assert appended.is_new
                assert backend.complete(held.lease, '"done"', using=using) is Verdict.DONE
                transaction.set_rollback(not commits, using=alias)
        finally:
            connections[alias].close()

    with ThreadPoolExecutor(1) as pool:
        await loop.run_in_executor(pool, work)
    assert len(await backend.insight.states([job.id])) == commits
    assert len(await backend.streams.events.read_stream("orders", event.stream, limit=5)) == commits
    assert await state_of(backend, held.id) is (JobState.COMPLETED if commits else JobState.RUNNING)


async def test_djangos_connection_outside_of_atomic_is_refused(backend: MysqlBackend, url: str):
    with pytest.raises(ConfigError, match=r"transaction\.atomic"):
        backend.join(connections[alias_of(url)])
