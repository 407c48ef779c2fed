"""An app on a SQLite file, or on each store where the store matters."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.servers.postgres_schemas import clean_schema

from holdfast import App


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    async with App(f"sqlite:///{tmp_path / 'jobs.db'}?synchronous=normal") as app:
        yield app
    app.portal.close()


@pytest.fixture(params=["sqlite", "postgres"])
def each_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'jobs.db'}?synchronous=normal"
    else:
        with clean_schema() as url:
            yield url


@pytest.fixture
async def on_each_store(each_url: str) -> AsyncIterator[App]:
    async with App(each_url) as app:
        yield app
    app.portal.close()
