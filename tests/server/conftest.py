"""A server over an app on SQLite and on PostgreSQL, reached in process: no port, no threads but the store's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from tests.app.conftest import RELAXED, install
from tests.servers.postgres_schemas import clean_schema

from holdfast import App
from holdfast.backends.postgres.wire import LibpqConnection
from holdfast.backends.sqlite import backend
from holdfast.backends.sqlite.connection import Connection
from holdfast.server import asgi, operating

_AROUND = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "PRAGMA")


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'jobs.db'}?{RELAXED}"
    else:
        with clean_schema() as schema:
            yield schema


@pytest.fixture
async def app(url: str) -> AsyncIterator[App]:
    await install(url)
    app = App(url)

    @app.task(queue="orders", max_attempts=3, retry=60)
    async def charge(order_id: int, note: str = "") -> int:
        return order_id

    yield app
    await app.close()


@pytest.fixture
async def sqlite_app(tmp_path: Path) -> AsyncIterator[App]:
    """An app for what does not depend on the store."""
    app = App(f"sqlite:///{tmp_path / 'jobs.db'}?{RELAXED}")
    yield app
    await app.close()


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Record every statement on the SQLite connections opened from here on; the call returns those since the last."""
    asked: list[str] = []

    def note(text: str) -> None:
        if not text.upper().startswith(_AROUND):
            asked.append(text)

    class Noted(Connection):
        def __init__(self, *given: Any, **more: Any) -> None:
            super().__init__(*given, **more)
            self.raw.set_trace_callback(note)

    monkeypatch.setattr(backend, "Connection", Noted)
    monkeypatch.setattr(operating, "_PERIOD", 1000.0)  # nothing but what the test asks for

    def since() -> list[str]:
        found = list(asked)
        asked.clear()
        return found

    return since


@pytest.fixture
def exchanges(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[None]]:
    """Record every exchange with PostgreSQL from here on; the call returns those since the last."""
    seen: list[None] = []
    known = LibpqConnection._answers

    async def noted(self: Any, *given: Any, **more: Any) -> Any:
        seen.append(None)
        return await known(self, *given, **more)

    def since() -> list[None]:
        found = list(seen)
        seen.clear()
        return found

    monkeypatch.setattr(LibpqConnection, "_answers", noted)
    return since


@pytest.fixture
async def server(app: App) -> AsyncIterator[Starlette]:
    server = asgi(app)
    yield server
    await server.state.holdfast.close()


@pytest.fixture
async def http(server: Starlette) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(server) as client:
        yield client


def client_of(server: Starlette, base: str = "http://localhost", **settings) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(server), base_url=base, **settings)


async def claim_one(http: httpx.AsyncClient, **wanted) -> Any:
    """Claim the only job that is ready."""
    body = {"queues": ["orders"], "tasks": ["charge"], **wanted}
    response = await http.post("/v1/leases/claim", json=body)
    assert response.status_code == 200, response.text
    (claimed,) = response.json()["leases"]
    return claimed
