"""Throw-away MariaDB and MySQL servers for the tests.

Where each comes from, the first that answers: the URL in $HOLDFAST_TEST_MARIADB or $HOLDFAST_TEST_MYSQL, a server on
this machine, the cache, a download into the cache. It listens on a free port of the loopback address only. One server
of a flavour serves a whole pytest run: `keeper.py`.

Databases are used by one test after another: creating the tables takes longer than most tests do. What a test has
written is deleted; a database with other tables than the installation's gets them dropped.
"""

from __future__ import annotations

import atexit
import os
import secrets
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import pymysql
from pymysql.constants import CLIENT
from tests.servers.downloads import URL_VARIABLES, program_or_reason
from tests.servers.keeper import KeeperFailedError, shared_url
from tests.servers.missing import give_up

from holdfast.app.open import open_backend
from holdfast.testing.mysql_server import Flavour, MysqlProgram, MysqlServer, mysql_server

__all__ = [
    "Flavour",
    "MysqlServer",
    "clean_database",
    "connect",
    "own_database",
    "own_server",
    "program_of",
    "return_database",
    "run",
    "server_url",
    "take_database",
]

NAMES = {"mariadb": "MariaDB", "mysql": "MySQL"}
_TIMEOUT = 90.0
_PROCESS = os.getpid()
_unused: defaultdict[str, list[str]] = defaultdict(list)
"""The databases that no test uses, of each server."""


def program_of(flavour: Flavour) -> MysqlProgram:
    """Return the server program of a flavour; the test is not run where there is none, and fails where CI=true."""
    found = program_or_reason(flavour)
    if isinstance(found, str):
        give_up(NAMES[flavour], f"{found}, in ${URL_VARIABLES[flavour]}")
    return found


@cache
def server_url(flavour: Flavour = "mariadb") -> str:
    """Return the URL of the run's server, with a slash at its end, started if need be; gives up without one."""
    given = os.environ.get(URL_VARIABLES[flavour])
    if given:
        return given.rstrip("/") + "/"
    program_of(flavour)
    try:
        return shared_url(
            flavour, lambda folder: ["-m", "tests.servers.mysql_keeper", str(folder), flavour], timeout=_TIMEOUT
        )
    except KeeperFailedError as error:
        give_up(NAMES[flavour], f"the server did not start:\n{error}")


def connect(url: str, **settings: Any) -> pymysql.Connection[Any]:
    """Open a plain connection to the server, or the database, of a URL."""
    parts = urlsplit(url)
    place = {"host": parts.hostname, "port": parts.port or 3306, "user": parts.username or "root"}
    flags = {"client_flag": CLIENT.MULTI_STATEMENTS, "ssl_disabled": True, "autocommit": True}
    database = parts.path.strip("/") or None
    return pymysql.connect(**{**place, **flags, "password": parts.password or "", "database": database, **settings})


def run(url: str, *statements: str) -> list[Any]:
    """Run statements on a connection for themselves; return the rows of the last one."""
    connection = connect(url)
    try:
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())
    finally:
        connection.close()


@contextmanager
def own_database(flavour: Flavour = "mariadb") -> Iterator[str]:
    """Yield the URL of an empty database, and drop it afterwards; skips without a server."""
    server = server_url(flavour)
    name = f"test_{secrets.token_hex(6)}"
    run(server, f"create database {name}")
    try:
        yield server + name
    finally:
        run(server, f"drop database if exists {name}")


@contextmanager
def clean_database(flavour: Flavour = "mariadb") -> Iterator[str]:
    """Yield the URL of a database with our tables, without jobs or events; skips without a server."""
    url = take_database(flavour)
    try:
        yield url
    finally:
        return_database(url)


def take_database(flavour: Flavour = "mariadb") -> str:
    """Return such a URL, for `return_database` afterwards."""
    server = server_url(flavour)
    return _unused[server].pop() if _unused[server] else _installed(server)


def return_database(url: str) -> None:
    """Empty a database for the next test, or drop it."""
    try:
        _empty(url)
    except pymysql.MySQLError:  # a test has dropped it, or has left a lock
        _drop(url)
    else:
        _unused[url[: url.rindex("/") + 1]].append(url)


def _installed(server: str) -> str:
    url = f"{server}test_{secrets.token_hex(6)}"
    run(server, f"create database {url.rpartition('/')[2]}")
    run(url, open_backend(url).schema.script())
    return url


@cache
def _tables(url: str) -> list[str]:
    return [name for (name,) in run(url, "show tables")]


def _empty(url: str) -> None:
    ours = [name for name in _tables(url) if name.startswith("holdfast_")]
    connection = connect(url, read_timeout=20)
    try:
        with connection.cursor() as cursor:
            cursor.execute("set session innodb_lock_wait_timeout = 3, session lock_wait_timeout = 3")
            cursor.execute("show tables")
            found = {name for (name,) in cursor.fetchall()}
            if not set(ours) <= found:
                raise pymysql.OperationalError(0, "tables are missing")
            for name in found - set(ours):
                cursor.execute(f"drop table `{name}`")
            kept = {"holdfast_meta", "holdfast_leadership"}
            deletes = [f"delete from {name}" for name in ours if name not in kept]  # noqa: S608 - our names
            restored = "update holdfast_leadership set epoch = 0, node_id = null, incarnation = null, until_at = 0"
            cursor.execute(";".join([*deletes, restored]))
            while cursor.nextset():
                pass
    finally:
        connection.close()


def _drop(url: str) -> None:
    server, _, name = url.rpartition("/")
    run(server + "/", f"drop database if exists {name}")


@atexit.register
def _drop_unused() -> None:
    """Leave nothing on a server that outlives the tests; a process that a test has forked drops nothing."""
    if os.getpid() == _PROCESS:
        given = {os.environ.get(name, "").rstrip("/") + "/" for name in URL_VARIABLES.values()}
        for server in given.intersection(_unused):
            for url in _unused[server]:
                _drop(url)


@contextmanager
def own_server(flavour: Flavour = "mariadb", **settings: Any) -> Iterator[MysqlServer]:
    """Give a test a server for itself, which it may kill, starve and set up as it likes; see `mysql_server`."""
    with mysql_server(program=program_of(flavour), **settings) as server:
        yield server
