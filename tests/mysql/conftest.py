"""A database for each test, on the server that the whole run shares."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from tests.servers import mysql

from holdfast.backends.mysql.backend import MysqlBackend
from holdfast.backends.mysql.backend import open_backend as open_mysql


@pytest.fixture
def url() -> Iterator[str]:
    """The URL of a database with our tables, without jobs or events."""
    with mysql.clean_database() as url:
        yield url


@pytest.fixture
async def backend(url: str) -> AsyncIterator[MysqlBackend]:
    backend = open_mysql(url)
    await backend.open()
    yield backend
    await backend.close()
