"""The demo as a program, and a look into its own tables from outside."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.servers.missing import give_up
from tests.servers.postgres import NoServerError
from tests.system.stores import PostgresStore

PROGRAM = (sys.executable, "-m", "holdfast", "demo")
SMALL = ("--jobs", "500", "--workers", "2", "--batch-size", "20", "--work-timeout", "1", "--seed", "5")
WITHIN = 100.0

ON_POSTGRES = (pytest.mark.slow, pytest.mark.timeout(180))  # a command has many more round trips there
ON_EACH = ("sqlite", pytest.param("postgres", marks=ON_POSTGRES))


class Demo:
    """A directory, a store, and demos that find it in the environment."""

    def __init__(self, directory: Path, url: str) -> None:
        self.directory = directory
        self.url = url
        self.environment = {**os.environ, "HOLDFAST_URL": url, "PYTHONUNBUFFERED": "1"}

    def run(self, *args: str, code: int = 0, failpoints: str = "") -> str:
        done = subprocess.run(
            [*PROGRAM, *args],
            cwd=self.directory,
            env={**self.environment, "HOLDFAST_FAILPOINTS": failpoints},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WITHIN,
            check=False,
        )
        assert done.returncode == code, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def start(self, *args: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*PROGRAM, *args],
            cwd=self.directory,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement on the demo's own tables, by a connection of our own."""
        raise NotImplementedError

    def change(self, statement: str) -> str:
        """Doctor the store, and return the id of the work that was touched."""
        ((job_id,),) = self.sql("select min(job_id) from holdfast_demo_effect")
        self.sql(statement.format(id=f"'{job_id}'"))
        return str(job_id)

    def effects(self) -> int:
        ((count,),) = self.sql("select count(*) from holdfast_demo_effect")
        return int(count)


class SqliteDemo(Demo):
    """A demo in a file."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "played.db"
        super().__init__(directory, f"sqlite:///{self.file}")

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        with contextlib.closing(sqlite3.connect(self.file, isolation_level=None, timeout=20)) as connection:
            return connection.execute(statement).fetchall()


class PostgresDemo(Demo):
    """A demo in a database, in the schema that it makes."""

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True, options="-c search_path=holdfast_demo") as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


def told(output: str) -> dict[str, list[str]]:
    """Return the rows of the verdict, as a program reads them in a pipe."""
    return {line.split("\t")[0]: line.split("\t")[1:] for line in output.splitlines() if "\t" in line}


@contextlib.contextmanager
def database() -> Iterator[str]:
    """Give the URL of a database of one's own."""
    try:
        store = PostgresStore()
    except NoServerError as error:
        give_up("PostgreSQL", str(error))
    try:
        yield store.url
    finally:
        store.close()


@contextlib.contextmanager
def demo_on(store: str, directory: Path) -> Iterator[Demo]:
    """Give a demo on a store that is empty."""
    if store == "sqlite":
        yield SqliteDemo(directory)
        return
    with database() as url:
        yield PostgresDemo(directory, url)
