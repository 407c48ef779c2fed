"""Where the server of a URL is: the proxy connects where libpq would, and its URL leads through the proxy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from tests.servers.missing import give_up
from tests.servers.postgres import NoServerError, drop_schema, new_schema_url, server_url

from holdfast import App
from holdfast.torture.proxy import Proxy
from holdfast.torture.server_address import ServerAddress, led_to, place_of
from holdfast.torture.target import target_of
from holdfast.torture.urls import postgres_url, with_settings


@contextmanager
def proxy_before(url: str) -> Iterator[Proxy]:
    proxy = Proxy(url)
    try:
        yield proxy
    finally:
        proxy.close()


@pytest.fixture
def server() -> dict[str, str]:
    """The parts of the URL of the tests' server, and the directory of its socket."""
    try:
        url = server_url()
    except NoServerError as error:
        give_up("PostgreSQL", str(error))
    with psycopg.connect(url) as connection:
        (socket,) = connection.execute("show unix_socket_directories").fetchone() or ("",)
    return {**{name: str(value) for name, value in conninfo_to_dict(url).items()}, "socket": socket}


@pytest.mark.parametrize("way", ["socket", "host"])
def test_what_a_url_does_not_say_is_found_as_libpq_finds_it(server, way, monkeypatch):
    monkeypatch.setenv("PGHOST", server[way])
    monkeypatch.setenv("PGPORT", server["port"])
    target = target_of(f"postgresql:///{server['dbname']}?user={server['user']}")
    assert not target.exists()

    assert place_of(target.url).target == server[way]
    with proxy_before(target.url) as proxy, psycopg.connect(postgres_url(proxy.url)) as connection:
        assert connection.execute("select 1").fetchone() == (1,)
        assert proxy.links == 1


def test_the_port_of_the_environment_holds_for_a_host_of_the_url(monkeypatch):
    monkeypatch.setenv("PGPORT", "6001")
    assert place_of("postgresql://me@db.example/x") == ServerAddress("db.example", "", 6001)
    assert place_of("postgresql://me@db.example:6002/x").port == 6002


def test_a_host_stays_what_a_certificate_is_held_against():
    url = "postgresql://me:secret@db.example:6000/x?sslmode=verify-full&hostaddr=10.0.0.7&schema=s"
    place = place_of(url)
    assert (place.target, place.port) == ("10.0.0.7", 6000)

    found = conninfo_to_dict(postgres_url(led_to(url, place, 7000)))

    assert (found["host"], found["hostaddr"], found["port"]) == ("db.example", "127.0.0.1", "7000")
    assert (found["user"], found["password"], found["sslmode"]) == ("me", "secret", "verify-full")


async def test_a_store_is_opened_through_the_proxy_under_the_name_of_its_host(server):
    target = target_of(new_schema_url().replace(server["host"], "localhost", 1))
    try:
        with proxy_before(target.url) as proxy:
            async with App(with_settings(proxy.url, reply_timeout="5")):
                assert proxy.links > 0
    finally:
        drop_schema(target.url)
