"""`using=` with Django's connections: over mysqlclient, or over PyMySQL in its place, where that is not installed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

import pymysql
import pymysql.constants
import pymysql.converters
import pymysql.cursors
import pytest
from tests.servers.django_settings import configure_django

from holdfast.backends.mysql.backend import MysqlBackend
from holdfast.errors import ConfigError
from holdfast.testing.conformance.base import a_job

pytest.importorskip("django")


def connection_to(url: str) -> Any:
    from django.db.backends.mysql.base import DatabaseWrapper

    parts = urlsplit(url)
    settings: dict[str, Any] = {
        "NAME": parts.path.strip("/"),
        "USER": parts.username,
        "PASSWORD": "",
        "HOST": parts.hostname,
        "PORT": str(parts.port),
        "OPTIONS": {},
        "TIME_ZONE": None,
        "CONN_MAX_AGE": 0,
        "AUTOCOMMIT": True,
        "CONN_HEALTH_CHECKS": False,
        "ATOMIC_REQUESTS": False,
        "ENGINE": "django.db.backends.mysql",
        "TEST": {},
    }
    return DatabaseWrapper(settings)


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
async def test_a_job_is_enqueued_in_djangos_transaction(backend: MysqlBackend, url: str, commits: bool):
    job = a_job()

    def work(loop: asyncio.AbstractEventLoop) -> None:
        connection = connection_to(url)
        connection.inc_thread_sharing()
        connection.set_autocommit(False, force_begin_transaction_with_broken_autocommit=True)
        connection.in_atomic_block = True
        enqueue = backend.join(connection).enqueue([job])
        assert asyncio.run_coroutine_threadsafe(enqueue, loop).result(20) == [True]
        connection.in_atomic_block = False
        (connection.commit if commits else connection.rollback)()
        connection.close()

    with ThreadPoolExecutor(1) as pool:
        await asyncio.get_running_loop().run_in_executor(pool, work, asyncio.get_running_loop())
    assert len(await backend.insight.states([job.id])) == commits


async def test_djangos_connection_outside_of_atomic_is_refused(backend: MysqlBackend, url: str):
    connection = connection_to(url)
    with pytest.raises(ConfigError, match=r"transaction\.atomic"):
        backend.join(connection)
