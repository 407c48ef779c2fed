"""A user with the documented rights can do all; without one of them, the error names it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.redis.replicas import pair
from tests.servers.redis import connection_of, own_redis

from holdfast import App
from holdfast.app.open import open_backend
from holdfast.backends.redis.error_map import EFFECT_RIGHTS, RIGHTS
from holdfast.errors import PrivilegeMissing
from holdfast.testing.conformance.base import LEASE, a_job, claim, enqueue, in_extender
from holdfast.testing.redis_server import RedisServer
from holdfast.testing.stores import open_store


@pytest.fixture(scope="module", params=["valkey", pytest.param("redis", marks=pytest.mark.slow)])
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    with own_redis(request.param) as server:
        yield server


def url_of(server: RedisServer, *rights: str, database: int = 0) -> str:
    """Return the URL of a store for a user with these rights and no others."""
    connection_of(server.url).execute_command("ACL", "SETUSER", "app", "reset", "on", ">secret", *rights)
    return f"redis://app:secret@127.0.0.1:{server.port}/{database}?name=rights"


@pytest.fixture(autouse=True)
def _empty(server: RedisServer) -> Iterator[None]:
    yield
    connection_of(server.url).flushall()


async def _do_all(url: str) -> None:
    async with App(url) as app:

        @app.task
        async def double(number: int) -> int:
            return 2 * number

        async with app.working(concurrency=2):
            assert await (await double.enqueue(4)).result(timeout=20) == 8
    async with open_store(url) as backend:
        await enqueue(backend, a_job())
        (job,) = await claim(backend)
        assert (await in_extender(backend, lambda extender: extender.extend([job.lease], LEASE))).lost == []
        assert (await backend.insight.facts())["appendfsync"]


async def test_a_user_with_the_documented_rights_can_do_all(server: RedisServer):
    await _do_all(url_of(server, *RIGHTS.split()))


@pytest.mark.slow
async def test_a_user_with_the_documented_rights_can_use_another_database_and_wait_for_replicas():
    with pair("valkey") as both:
        await _do_all(url_of(both.primary, *RIGHTS.split(), database=3) + "&durability=replicated")


async def test_a_user_reaches_no_key_of_another_program(server: RedisServer):
    url = url_of(server, *RIGHTS.split())
    connection_of(server.url).set("balance", 100)
    async with open_store(url) as backend:
        wire = backend._parts.here.wire  # type: ignore[attr-defined]
        for words in (
            ("GET", "balance"),
            ("DEL", "balance"),
            ("FLUSHALL",),
            ("KEYS", "*"),
            ("CONFIG", "SET", "save", ""),
        ):
            with pytest.raises(PrivilegeMissing):
                await wire.ask(*words)
    assert connection_of(server.url).get("balance") == b"100"


@pytest.mark.parametrize(
    ("missing", "named"),
    [
        ("+@read", "hget"),
        ("+@write", "hset|script"),
        ("+eval", "eval"),
        ("+evalsha", "evalsha"),
        ("+script|load", "script"),
        ("+info", "info"),
        ("~{holdfast:*}:*", "key"),
    ],
)
async def test_without_a_right_the_error_names_it_and_the_remedy(server: RedisServer, missing: str, named: str):
    connection_of(server.url).script_flush()
    backend = open_backend(url_of(server, *(right for right in RIGHTS.split() if right != missing)))
    with pytest.raises(PrivilegeMissing, match=f"(?i){named}.*ACL SETUSER <user> "):
        await _open_and_enqueue(backend)
    await backend.close()


async def _open_and_enqueue(backend) -> None:
    await backend.open()
    await backend.jobs.enqueue([a_job()])


def test_the_guide_shows_these_rights():
    guide = (Path(__file__).parents[2] / "docs/howto/redis.md").read_text(encoding="utf-8")
    assert f"ACL SETUSER app on >secret {RIGHTS}\n" in guide
    assert f"ACL SETUSER app {EFFECT_RIGHTS}\n" in guide
