"""An app on each kind of SQLite store, closed afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.servers.postgres_schemas import clean_schema
from tests.servers.redis import own_store

from holdfast import App
from holdfast.app.open import open_backend

RELAXED = "synchronous=normal"  # no test here crashes the machine, and syncing takes most of their time


async def install(url: str) -> None:
    """Make the tables, for tests that read before they write."""
    backend = open_backend(url)
    await backend.open()
    await backend.close()


# In memory, all threads of a process share one connection: these modules run workers and transactions over it. Whatever
# else is above the port is the same on both, and the conformance suite runs on both.
_IN_MEMORY_TOO = {"test_batch", "test_ends_of_attempts", "test_worker"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of some modules in memory, too."""
    if "path" in metafunc.fixturenames and metafunc.module.__name__.rpartition(".")[2] in _IN_MEMORY_TOO:
        metafunc.parametrize("path", ["file", pytest.param("memory", marks=pytest.mark.slow)], indirect=True)


# These never reach a store but through verbs that every store has: on the others they are slow tests.
_ABOVE_THE_PORT = {"test_app_middleware", "test_audit", "test_hooks", "test_operations", "test_tokens"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and item.path.stem in _ABOVE_THE_PORT:
            callspec = getattr(item, "callspec", None)
            if callspec is not None and callspec.params.get("each_url", "sqlite") != "sqlite":
                item.add_marker(pytest.mark.slow)


@pytest.fixture
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    """The database file; None where the store is in memory."""
    return None if getattr(request, "param", "file") == "memory" else tmp_path / "jobs.db"


@pytest.fixture
async def app(path: Path | None) -> AsyncIterator[App]:
    url = "sqlite://" if path is None else f"sqlite:///{path}?{RELAXED}"
    await install(url)
    app = App(url)
    yield app
    await app.close()
    app.portal.close()


@pytest.fixture
async def file_app(tmp_path: Path) -> AsyncIterator[App]:
    """An app on a file, for what takes a second connection."""
    url = f"sqlite:///{tmp_path / 'jobs.db'}?{RELAXED}"
    await install(url)
    app = App(url)
    yield app
    await app.close()
    app.portal.close()


@pytest.fixture(params=["sqlite", "postgres", "valkey"])
def each_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A store of each kind, with its tables; the conformance suite runs on the other servers of a kind."""
    match request.param:
        case "sqlite":
            yield f"sqlite:///{tmp_path / 'jobs.db'}?{RELAXED}"
        case "postgres":
            with clean_schema() as url:
                yield url
        case flavour:
            with own_store(flavour) as url:
                yield url


@pytest.fixture
async def on_each_store(each_url: str) -> AsyncIterator[App]:
    """An app on each kind of store."""
    await install(each_url)
    app = App(each_url)
    async with app:
        yield app
    app.portal.close()
