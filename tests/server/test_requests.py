"""What is refused before an operation begins, and how every refusal looks."""

from __future__ import annotations

import asyncio
from functools import reduce
from typing import Any

import pytest
from tests.server.conftest import client_of

from holdfast import App
from holdfast.errors import HoldfastError, OutcomeUnknown, StoreUnavailable
from holdfast.server import asgi, time_limit
from holdfast.server.api import bodies
from holdfast.server.problems import MEDIA_TYPE, problem_of
from holdfast.server.security_headers import HEADERS
from holdfast.server.state import ServerSettings, ServerState

JOB = b'{"task": "t"}'
JSON = {"content-type": "application/json"}


@pytest.fixture
async def http(sqlite_app: App):
    async with client_of(asgi(sqlite_app)) as client:
        yield client


@pytest.mark.parametrize(
    ("content", "headers", "status", "name"),
    [
        (JOB, {}, 415, "unsupported-media-type"),
        (JOB, {"content-type": "text/plain"}, 415, "unsupported-media-type"),
        (JOB, {"content-type": "application/x-www-form-urlencoded"}, 415, "unsupported-media-type"),
        (b"{", JSON, 400, "malformed-body"),
        (b'{"task": "\xff"}', JSON, 400, "malformed-body"),
        (b"[" * 100_000, JSON, 422, "invalid-request"),
        (b'{"task": "t", "args": [' + b"[" * 100_000, JSON, 400, "malformed-body"),
        (b"", JSON, 422, "invalid-request"),
        (b"[]", JSON, 422, "invalid-request"),
        (b'{"task": "t", "prioirty": 1}', JSON, 422, "invalid-request"),
        (b'{"task": "no name"}', JSON, 422, "invalid-request"),
        (b'{"task": "t", "kwargs": {"a": "\\u0000"}}', JSON, 422, "arguments-error"),
        (b'{"task": "t", "delay_seconds": 1, "run_at": "2031-01-01T00:00:00Z"}', JSON, 422, "config-error"),
        (b'{"task": "t", "run_at": "2031-01-01T00:00:00"}', JSON, 422, "invalid-request"),
        (b'{"task": "t", "args": ["%s"]}' % (b"x" * 300_000), JSON, 422, "payload-error"),
    ],
)
async def test_a_body_that_is_not_a_job_is_refused(http, content: bytes, headers, status: int, name: str):
    response = await http.post("/v1/jobs", content=content, headers=headers)

    assert (response.status_code, response.json()["type"]) == (status, f"/v1/problems/{name}")
    assert response.headers["content-type"] == MEDIA_TYPE
    assert response.json()["status"] == status


@pytest.mark.parametrize("sent_in", ["one piece", "pieces"])
async def test_a_body_over_the_limit_is_refused_before_it_is_parsed(sqlite_app: App, sent_in: str):
    server = asgi(sqlite_app)
    server.state.holdfast = ServerState(sqlite_app, ServerSettings(max_body=1000))

    async def pieces():
        for _ in range(5):
            yield b" " * 300

    async with client_of(server) as http:
        content: Any = b" " * 1001 if sent_in == "one piece" else pieces()
        response = await http.post("/v1/jobs", content=content, headers=JSON)

    assert (response.status_code, response.json()["title"]) == (413, "Body too large")


@pytest.mark.parametrize("kind", ["application/json", "application/x-www-form-urlencoded"])
async def test_a_sender_that_is_too_slow_is_answered(http, kind: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bodies, "_TIME", 0.05)

    async def trickle():
        yield b" "
        await asyncio.sleep(5)
        yield b" "

    path = "/v1/jobs" if kind == "application/json" else "/queues"
    response = await http.post(path, content=trickle(), headers={"content-type": kind})

    assert (response.status_code, response.json()["title"]) == (408, "Request timeout")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/jobs",
        "/v1/jobs?state=done",
        "/v1/jobs?state=ready&limit=0",
        "/v1/jobs?state=ready&limit=501",
        "/v1/jobs?state=ready&state=failed",
        "/v1/jobs?state=ready&colour=red",
        "/v1/jobs?state=ready&cursor=x",
        "/v1/jobs/01a1ef92-8066-7469-9b72-a54f80d6a0db/wait?wait_seconds=31",
        "/v1/audit?before=x",
        "/v1/queues/orders/backlog?jobs_per_worker=null",
    ],
)
async def test_a_wrong_query_is_refused(http, path: str):
    response = await http.get(path)

    assert (response.status_code, response.headers["content-type"]) == (422, MEDIA_TYPE)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/jobs/nonsense", 404),
        ("GET", "/v1/jobs/01a1ef92-8066-7469-9b72-a54f80d6a0db", 404),
        ("GET", "/v1/jobs/01a1ef92-8066-7469-9b72-a54f80d6a0db/explain", 404),
        ("POST", "/v1/jobs/01a1ef92-8066-7469-9b72-a54f80d6a0db/retry", 404),
        ("DELETE", "/v1/jobs/01a1ef92-8066-7469-9b72-a54f80d6a0db", 404),
        ("GET", "/v1/schedules/none", 404),
        ("POST", "/v1/schedules/none/run", 404),
        ("GET", "/v1/consumers/none", 404),
        ("POST", "/v1/consumers/none/pause", 404),
        ("GET", "/v1/categories/none/events", 404),
        ("GET", "/v1/operations/01a1ef92-8066-7469-9b72-a54f80d6a0db", 404),
        ("POST", "/v1/queues/no%20name/pause", 404),
        ("GET", "/v1/other", 404),
        ("PUT", "/v1/jobs", 405),
    ],
)
async def test_what_is_not_there_is_a_problem_too(http, method: str, path: str, status: int):
    response = await http.request(method, path)

    assert (response.status_code, response.headers["content-type"]) == (status, MEDIA_TYPE)
    assert set(response.json()) >= {"type", "title", "status", "detail"}


@pytest.mark.parametrize(
    ("slow", "method", "path", "more"),
    [
        ("queues.list", "GET", "/v1/queues", {}),
        ("queues.list", "GET", "/queues", {}),
        ("tokens.verify", "GET", "/v1/queues", {"headers": {"authorization": "Bearer x"}}),
        ("tokens.verify", "GET", "/metrics", {"headers": {"authorization": "Bearer x"}}),
        ("queues.pause", "POST", "/queues", {"data": {"verb": "pause", "name": "orders"}}),
        ("jobs.list", "GET", "/preview?verb=retry&of=all&state=failed", {}),
        ("consumers.show", "GET", "/ask?of=/streams&verb=reset&name=billing&to=end", {}),
        ("backend.insight.find", "GET", "/jobs?q=0123", {}),
        ("audit.list", "GET", "/audit/export", {}),
    ],
)
async def test_a_store_that_takes_too_long_is_answered_for(
    sqlite_app: App, slow: str, method: str, path: str, more: Any, monkeypatch: pytest.MonkeyPatch
):
    async def never(*_: object, **__: object) -> None:
        await asyncio.sleep(20)

    await sqlite_app.opened()
    *parts, name = slow.split(".")
    monkeypatch.setattr(reduce(getattr, parts, sqlite_app), name, never)
    monkeypatch.setattr(time_limit, "TIME_LIMIT", 0.05)
    async with client_of(asgi(sqlite_app)) as http:
        assert (await http.request(method, path, **more)).status_code == 503


async def test_the_refusal_of_a_method_names_all_that_there_are(http):
    for path, methods in [("/v1/jobs", {"GET", "HEAD", "POST"}), ("/v1/jobs/batch", {"POST"})]:
        response = await http.options(path)
        assert (response.status_code, set(response.headers["allow"].split(", "))) == (405, methods)
    assert (await http.get("/v1/jobs/batch")).status_code == 405
    assert (await http.head("/v1/queues")).status_code == 200


@pytest.mark.parametrize(
    ("key", "status"), [("order 7", 201), ("x" * 255, 201), ("x" * 256, 400), ("", 400), ("é", 400)]
)
async def test_an_idempotency_key_is_of_ascii(http, key: str, status: int):
    headers = {"content-type": "application/json", "idempotency-key": key.encode()}
    assert (await http.post("/v1/jobs", content=JOB, headers=headers)).status_code == status


async def test_every_answer_carries_the_security_headers(http):
    for response in (await http.get("/v1/queues"), await http.get("/v1/none"), await http.post("/v1/jobs")):
        assert {name: response.headers[name] for name in HEADERS} == HEADERS
    assert "unsafe" not in HEADERS["content-security-policy"]


async def test_an_error_of_the_store_reveals_nothing_of_it(sqlite_app: App, monkeypatch: pytest.MonkeyPatch, caplog):
    secret = "connect to db.internal as admin: select * from holdfast_job"  # noqa: S105
    for error, status in [(StoreUnavailable(secret), 503), (OutcomeUnknown(secret), 503), (RuntimeError(secret), 500)]:

        async def fail(*_: object, error: Exception = error, **__: object) -> None:
            raise error

        monkeypatch.setattr(sqlite_app.queues, "list", fail)
        async with client_of(asgi(sqlite_app)) as http:
            http._transport.raise_app_exceptions = False  # type: ignore[attr-defined]
            response = await http.get("/v1/queues")

        assert (response.status_code, response.headers["content-type"]) == (status, MEDIA_TYPE)
        assert secret not in response.text
        assert secret in caplog.text


def test_every_error_of_holdfast_has_a_status():
    def kinds(kind: type[HoldfastError]) -> set[type[HoldfastError]]:
        return {kind}.union(*(kinds(sub) for sub in kind.__subclasses__()))

    for kind in kinds(HoldfastError) - {HoldfastError}:
        if kind.__module__ == "holdfast.errors":
            error = kind.__new__(kind)
            assert 400 <= problem_of(error).status <= 503, kind
            assert problem_of(error).status != 500, kind
