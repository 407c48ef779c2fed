"""The server as a command: where it may listen, and how KEDA reaches it."""

from __future__ import annotations

import asyncio
import socket
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from tests.app.conftest import RELAXED
from tests.server.conftest import client_of

from holdfast import App, ConfigError
from holdfast.cli.server import run
from holdfast.server import asgi, head_limit
from holdfast.server.serve import PORT, HttpServer, check_tokens, config_of, serve

SCALED = Path(__file__).parents[2] / "deploy" / "kubernetes" / "scaledobject.yml"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])  # noqa: S104 - it is refused
def test_it_does_not_start_on_another_address_without_a_token(tmp_path, host: str):
    app = App(f"sqlite:///{tmp_path / 'jobs.db'}?{RELAXED}")

    with pytest.raises(ConfigError, match="holdfast server token create"):
        serve(app, host=host, port=0)

    assert not app.is_open


async def test_an_expired_token_is_none(sqlite_app: App):
    await sqlite_app.tokens.create("old", ["admin"], lasts=timedelta(microseconds=1))

    with pytest.raises(ConfigError, match="no valid token"):
        await check_tokens(sqlite_app, "0.0.0.0")  # noqa: S104 - it is refused
    await sqlite_app.tokens.create("new", ["read"])
    await check_tokens(sqlite_app, "0.0.0.0")  # noqa: S104 - not served


async def test_a_head_that_is_sent_too_slowly_ends_its_connection_and_a_request_does_not(
    sqlite_app: App, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(head_limit, "_TIME", 0.3)
    application = asgi(sqlite_app)
    server = HttpServer(config_of(application), application.state.holdfast)
    half = b"GET /livez HTTP/1.1\r\nHost: local"
    body = b'{"queues": ["orders"], "tasks": ["charge"], "wait_seconds": 1}'
    claim = b"POST /v1/leases/claim HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    claim += b"Content-Length: %d\r\n\r\n" % len(body) + body
    with socket.create_server(("127.0.0.1", 0)) as listener:
        running = asyncio.create_task(server.serve([listener]))

        async def answered(sent: bytes, then: bytes = b"") -> bytes:
            """Return what comes before the server closes the connection; after an answer, send more."""
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(sent)
            got = b""
            if then:
                got = await reader.readuntil(b"}")
                writer.write(then)
            async with asyncio.timeout(4):  # less than the pause that uvicorn allows between requests
                got += await reader.read()
            writer.close()
            return got

        assert not any(await asyncio.gather(answered(b""), answered(half)))
        assert (await answered(claim, half)).startswith(b"HTTP/1.1 200")
        server.should_exit = True
        await running


async def test_keda_reaches_the_backlog_with_its_token(sqlite_app: App):
    objects = list(yaml.safe_load_all(SCALED.read_text(encoding="utf-8")))
    specs = {(one["kind"], one["metadata"]["name"]): one["spec"] for one in objects}
    triggers = [trigger for one in objects for trigger in one["spec"].get("triggers", ())]
    (asking,) = [trigger for trigger in triggers if trigger["type"] == "metrics-api"]
    url = urlsplit(asking["metadata"]["url"])
    token = await sqlite_app.tokens.create("keda", ["read"])

    async with client_of(asgi(sqlite_app, requires_token=True)) as http:
        refused = await http.get(url.path)
        answer = await http.get(url.path, headers={"authorization": f"Bearer {token}"})

    assert url.port == PORT
    assert [option.default for option in run.params if option.name == "port"] == [PORT]
    assert refused.status_code == 401
    assert answer.json()[asking["metadata"]["valueLocation"]] == 0
    assert asking["metadata"]["authMode"] == "bearer"
    (secret,) = specs["TriggerAuthentication", asking["authenticationRef"]["name"]]["secretTargetRef"]
    assert secret["parameter"] == "token"
