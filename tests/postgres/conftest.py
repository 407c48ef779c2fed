"""A schema for each test, on the server that the whole run shares."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest
from tests.postgres.standing_still import Watch
from tests.servers.missing import give_up
from tests.servers.postgres import NoServerError, OwnServer, own_schema, own_server, parts_of
from tests.servers.postgres_schemas import clean_schema

from holdfast.store.backend import Backend
from holdfast.testing.stores import open_store


@pytest.fixture
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of an installed, empty schema; of one that does not exist yet for a test marked `new_schema`."""
    is_new = request.node.get_closest_marker("new_schema") is not None
    with own_schema() if is_new else clean_schema() as url:
        yield url


@pytest.fixture
async def backend(url: str) -> AsyncIterator[Backend]:
    async with open_store(url) as backend:
        yield backend


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that the server's user may enter: pytest shuts its own whenever another run begins."""
    with tempfile.TemporaryDirectory(prefix="holdfast-server-") as folder:
        yield Path(folder)


@pytest.fixture
def roomy_server(open_folder: Path) -> Iterator[OwnServer]:
    """A server with room for a worker and all its handlers; what it has acknowledged survives a crash."""
    try:
        with own_server(open_folder, fsync="on", max_connections="60") as server:
            yield server
    except NoServerError as error:
        give_up("PostgreSQL", str(error))


@pytest.fixture
def server(open_folder: Path) -> Iterator[OwnServer]:
    try:
        with own_server(open_folder, fsync="off", max_connections="12", superuser_reserved_connections="3") as server:
            yield server
    except NoServerError as error:
        give_up("PostgreSQL", str(error))


@pytest.fixture
def watch(backend: Backend, url: str) -> Iterator[Watch]:
    server, schema = parts_of(url)
    with psycopg.connect(server, autocommit=True, application_name="watch") as connection:
        yield Watch(connection, schema)
