"""PostgreSQL for benchmarks: a schema of its own for each measurement, on the server that the URL names."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg import sql

from benchmarks.meter import Meter
from benchmarks.raw import postgres as raw_postgres
from benchmarks.raw import postgres_tables
from benchmarks.stores import Held, Inserter, Place, UnreachableError, Yardstick
from holdfast import App

_COUNTS = """
select (select count(distinct id) from job), (select count(*) from ready),
       (select count(*) from running) + (select count(*) from scheduled), (select count(*) from completed),
       (select count(*) from failed) + (select count(*) from cancelled),
       (select coalesce(max(attempt), 0) from completed)
"""
_NOW = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint"
_SPAN = "select max(finished_at) - min(started_at) from completed where started_at >= %s"


class PostgresStore:
    """Schemas in one database."""

    name = "postgresql"
    raw: Yardstick = raw_postgres

    def __init__(self, url: str) -> None:
        self._url = url
        self._conninfo, _ = raw_postgres.split(url)

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self._conninfo, autocommit=True)

    @property
    def version(self) -> str:
        try:
            connection = self._connect()
        except psycopg.Error as error:
            message = f"the server cannot be reached: {' '.join(str(error).split())}"
            raise UnreachableError(message) from None
        with closing(connection):
            return str(connection.info.parameter_status("server_version"))

    @property
    def driver(self) -> str:
        return f"psycopg {psycopg.__version__}"

    @contextmanager
    def fresh(self) -> Generator[Place]:
        schema = f"holdfast_bench_{secrets.token_hex(6)}"
        parts = urlsplit(self._url)
        kept = [(name, value) for name, value in parse_qsl(parts.query) if name not in {"schema", "install"}]
        url = urlunsplit(parts._replace(query=urlencode([*kept, ("schema", schema)])))
        try:
            yield Place(url, url)
        finally:
            with closing(self._connect()) as connection:
                connection.execute(sql.SQL("drop schema if exists {} cascade").format(sql.Identifier(schema)))

    def held(self, place: Place) -> Held:
        with closing(raw_postgres.connect(place.raw)) as connection:
            return Held(*connection.execute(_COUNTS).fetchone() or ())

    def now(self) -> int:
        with closing(self._connect()) as connection:
            (micros,) = connection.execute(_NOW).fetchone() or (0,)
        return int(micros)

    def completed(self, place: Place) -> int:
        with closing(raw_postgres.connect(place.raw)) as connection:
            (count,) = connection.execute("select count(*) from completed").fetchone() or (0,)
        return int(count)

    def span(self, place: Place, since: int = 0) -> float:
        with closing(raw_postgres.connect(place.raw)) as connection:
            (micros,) = connection.execute(_SPAN, (since,)).fetchone() or (0,)
        return float(micros) / 1e6

    @contextmanager
    def inserting(self, place: Place) -> Generator[Inserter]:
        async def install() -> None:
            async with App(place.url):
                pass

        asyncio.run(install())
        with closing(raw_postgres.connect(place.raw)) as connection:
            lane_id = postgres_tables.prepare(connection)
            yield Inserter(
                partial(postgres_tables.bulk, connection, lane_id),
                partial(postgres_tables.one, connection, lane_id),
                partial(postgres_tables.held, place.raw),
            )

    @contextmanager
    def metered(self, place: Place) -> Generator[Callable[[], Mapping[str, float]]]:
        with closing(raw_postgres.connect(place.raw)) as connection:
            meter = Meter(connection)
            yield meter.spent
            meter.stop()

    @contextmanager
    def snapshot(self, place: Place) -> Generator[None]:
        with closing(psycopg.connect(raw_postgres.split(place.raw)[0])) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.execute("select count(*) from pg_class")
            yield
            connection.rollback()

    @contextmanager
    def foreign(self) -> Generator[str]:
        name = f"holdfast_bench_{secrets.token_hex(6)}"
        with closing(self._connect()) as connection:
            connection.execute(sql.SQL("create database {} template template0").format(sql.Identifier(name)))
            try:
                yield urlunsplit(urlsplit(self._conninfo)._replace(path=f"/{name}"))
            finally:
                connection.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))
