"""A database for each test, on the server that the whole run shares: MariaDB, and in `make test-slow` MySQL, too."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from tests.servers import mysql

from holdfast.backends.mysql.backend import MysqlBackend
from holdfast.backends.mysql.backend import open_backend as open_mysql


@pytest.fixture(params=["mariadb", pytest.param("mysql", marks=pytest.mark.slow)])
def flavour(request: pytest.FixtureRequest) -> mysql.Flavour:
    chosen: mysql.Flavour = request.param
    return chosen


@pytest.fixture
def url(flavour: mysql.Flavour) -> Iterator[str]:
    """The URL of a database with our tables, without jobs or events."""
    with mysql.clean_database(flavour) as url:
        yield url


@pytest.fixture
async def backend(url: str) -> AsyncIterator[MysqlBackend]:
    backend = open_mysql(url)
    await backend.open()
    yield backend
    await backend.close()
