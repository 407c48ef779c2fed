"""A SQLite store with a little of everything, and a client of its dashboard on the loopback address."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast import App
from holdfast.server import asgi

RELAXED = "synchronous=normal"  # no test here crashes the machine
ADDRESS = "http://127.0.0.1:8000"


class Site:
    """A shop, its dashboard, and a client in the role of admin unless another is given."""

    def __init__(self, url: str) -> None:
        self.app = app = App(url, name="shop")
        self.role: str | None = "admin"
        self.server = asgi(app, authorize=lambda _: self.role)
        transport = httpx.ASGITransport(self.server, client=("127.0.0.1", 50000))
        self.client = httpx.AsyncClient(transport=transport, base_url=ADDRESS, headers={"accept": "text/html"})

        @app.task(queue="mails", max_attempts=1)
        async def send(to: str, password: str = "") -> str:
            if to == "broken":
                raise ValueError(f"no mailbox <b>{to}</b>")
            return f"sent to {to}"

        self.send = send

    async def get(self, path: str, status: int = 200) -> str:
        """Return a page."""
        answer = await self.client.get(path)
        assert answer.status_code == status, answer.text
        return answer.text

    async def post(self, path: str, status: int = 303, **fields: Any) -> httpx.Response:
        """Send a form, as a browser does from a page of this server."""
        answer = await self.client.post(path, data=fields, headers={"origin": ADDRESS})
        assert answer.status_code == status, answer.text
        return answer

    async def failed_job(self) -> str:
        """Return the id of a job that has failed."""
        job = await self.send.enqueue("broken", password="hunter2")  # noqa: S106 - to be redacted
        await self.app.drain("mails")
        return job.id


@pytest.fixture
async def site(tmp_path: Path, statements: object) -> AsyncIterator[Site]:
    site = Site(f"sqlite:///{tmp_path / 'shop.db'}?{RELAXED}")
    async with site.app, site.client:
        yield site
