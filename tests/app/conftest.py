"""An app on each kind of SQLite store, closed in the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from holdfast import App

MakeApp = Callable[[], App]


@pytest.fixture(params=["file", "memory"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    """The database file; None where the store is in memory."""
    return tmp_path / "jobs.db" if request.param == "file" else None


@pytest.fixture
async def app(path: Path | None) -> AsyncIterator[App]:
    app = App("sqlite://" if path is None else f"sqlite:///{path}")
    yield app
    await app.close()
    app.portal.close()


@pytest.fixture
async def file_app(tmp_path: Path) -> AsyncIterator[App]:
    """An app on a file, for what takes a second connection."""
    app = App(f"sqlite:///{tmp_path / 'jobs.db'}")
    yield app
    await app.close()
    app.portal.close()
