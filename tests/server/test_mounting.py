"""The server inside other programs: with and without lifespan events, with a prefix, in three frameworks."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from tests.server.conftest import client_of
from tests.servers.django_settings import configure_django

from holdfast import App, ConfigError
from holdfast.server import asgi


async def round_trip(http: httpx.AsyncClient, base: str) -> str:
    """Enqueue a job and follow its location, as it is given; return the location."""
    made = await http.post(f"{base}/v1/jobs", json={"task": "t"})
    assert made.status_code == 201, made.text
    found = await http.get(made.headers["location"])
    assert found.json()["job"]["id"] == made.json()["id"]
    return made.headers["location"]


def outside(application: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(application), base_url="http://localhost")


async def test_in_starlette_it_opens_the_store_with_the_first_request(sqlite_app: App):
    around = Starlette(routes=[Mount("/queue", asgi(sqlite_app))])

    async with outside(around) as http:
        assert not sqlite_app.is_open
        assert (await round_trip(http, "/queue")).startswith("/queue/v1/jobs/")
        assert (await http.get("/queue/v1/queues")).headers["x-content-type-options"] == "nosniff"


async def test_without_lifespan_events_the_probe_for_readiness_opens_the_store(sqlite_app: App):
    """Nothing else would: what asks this probe sends no request before it passes."""
    async with outside(Starlette(routes=[Mount("/queue", asgi(sqlite_app))])) as http:
        ready = await http.get("/queue/readyz")

    assert (ready.status_code, ready.json()["checks"]) == (200, {"store": True, "schema": True})


async def test_a_read_only_server_installs_nothing(sqlite_app: App):
    async with outside(asgi(sqlite_app, read_only=True)) as http:
        assert (await http.get("/readyz")).json() == {"ok": False, "checks": {"store": False}}


async def test_in_fastapi_beside_its_own_routes(sqlite_app: App):
    from fastapi import FastAPI

    api = FastAPI()

    @api.get("/own")
    async def own() -> str:
        return "own"

    api.mount("/queue", asgi(sqlite_app))

    async with outside(api) as http:
        assert (await http.get("/own")).json() == "own"
        await round_trip(http, "/queue")
        refused = await http.get("/queue/v1/nothing")
        assert (refused.status_code, refused.headers["content-type"]) == (404, "application/problem+json")


async def test_in_django_with_a_prefix(sqlite_app: App):
    from django.core.asgi import get_asgi_application
    from django.test import override_settings

    configure_django()
    queue = asgi(sqlite_app, prefix="/queue")

    async def both(scope: Any, receive: Any, send: Any) -> None:
        inner = queue if scope["path"].startswith("/queue/") else pages
        await inner(scope, receive, send)

    own = {"ROOT_URLCONF": "tests.server.django_urls", "ALLOWED_HOSTS": ["localhost"]}
    with override_settings(**own):
        pages = get_asgi_application()
        async with outside(both) as http:
            assert (await http.get("/own")).text == "own"
            assert (await round_trip(http, "/queue")).startswith("/queue/v1/jobs/")


@pytest.mark.parametrize(("mounted", "prefix"), [("", ""), ("", "/queue"), ("/shop", ""), ("/shop", "/queue")])
async def test_the_type_of_a_problem_leads_to_what_it_means(sqlite_app: App, mounted: str, prefix: str):
    server = Starlette(routes=[Mount(mounted, asgi(sqlite_app, prefix=prefix))])
    async with client_of(server) as http:
        for path, name in (("/v1/jobs?state=x", "invalid-request"), ("/v1/none", "not-found")):
            problem = (await http.get(f"{mounted}{prefix}{path}")).json()
            meaning = (await http.get(problem["type"])).json()

            assert problem["type"] == f"{mounted}{prefix}/v1/problems/{name}"
            assert (meaning["name"], meaning["title"], meaning["status"]) == (name, problem["title"], problem["status"])


async def test_the_features_of_the_server_and_its_store_are_listed(sqlite_app: App):
    async with client_of(asgi(sqlite_app, read_only=True)) as http:
        features = (await http.get("/v1")).json()

    assert (features["store"], features["is_read_only"]) == ("sqlite", True)
    assert features["limits"] == {"body_bytes": 8 * 2**20, "jobs": 1000, "leases": 500, "wait_seconds": 30}


@pytest.mark.parametrize("was_open", [False, True])
async def test_with_a_lifespan_it_closes_only_what_it_has_opened(sqlite_app: App, was_open: bool):
    if was_open:
        await sqlite_app.opened()
    server = asgi(sqlite_app)

    async with server.router.lifespan_context(server):
        assert sqlite_app.is_open
        async with client_of(server) as http:
            await round_trip(http, "")

    assert sqlite_app.is_open is was_open


async def test_two_servers_of_one_app_share_its_store(sqlite_app: App):
    async with client_of(asgi(sqlite_app)) as one, client_of(asgi(sqlite_app, read_only=True)) as other:
        location = await round_trip(one, "")
        assert (await other.get(location)).status_code == 200
        assert (await other.post("/v1/jobs", json={"task": "t"})).status_code == 403


@pytest.mark.parametrize("prefix", ["queue", "/queue/", "/"])
def test_a_prefix_that_is_not_a_path_is_refused(sqlite_app: App, prefix: str):
    with pytest.raises(ConfigError, match=r"write it like '/holdfast'"):
        asgi(sqlite_app, prefix=prefix)
