"""The tables: numbered files under `migrations/`, applied in order under the write lock."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from holdfast.backends.sql.files import migrations
from holdfast.backends.sqlite.connection import Tx, looking_at
from holdfast.backends.sqlite.execute import direct
from holdfast.backends.sqlite.location import SqliteLocation
from holdfast.store.schema_version import require_version
from holdfast.store.steps import Runner

MIGRATIONS = migrations("holdfast.backends.sqlite")
CURRENT = max(MIGRATIONS)


class SqliteSchema:
    """`Schema` on SQLite."""

    def __init__(self, runner: Runner, location: SqliteLocation) -> None:
        self._runner = runner
        self._location = location

    async def install(self) -> int:
        """Upgrade the tables to this version; idempotent, and safe when several processes call it at once."""
        return await self._runner.write(direct(_upgrade))

    async def check(self) -> None:
        """Raise `SchemaMismatch` unless the tables are those of this version; never change another program's file.

        So the file is first read through a read-only connection. A file that already uses a write-ahead log is then
        read through a normal connection, which changes nothing: the last connection to close removes the log, which a
        read-only one cannot do.
        """
        if self._location.path is not None:
            path, timeout = self._location.path, self._location.busy_timeout
            found = await asyncio.to_thread(_look, path, timeout)
            if found is not None:
                _compare(found)
                return
        version = await self._runner.read(direct(_version))
        _compare(version)

    async def open(self) -> None:
        """Install into an empty database; raise `SchemaMismatch` for an older or newer one."""
        version = await self._runner.read(direct(_version))
        if version == 0:
            version = await self._runner.write(direct(lambda tx: _upgrade(tx) if _version(tx) == 0 else _version(tx)))
        _compare(version)

    def script(self) -> str:
        """Return the SQL that `install` runs on an empty database."""
        return "\n".join(MIGRATIONS.values())


def _look(path: Path, timeout: float) -> int | None:
    """Return the version of the tables in a file, 0 without tables; None if the file uses a write-ahead log."""
    if not path.exists():
        return 0
    with looking_at(path, timeout=timeout) as tx:
        return None if tx.pragma("journal_mode") == "wal" else _version(tx)


def _version(tx: Tx) -> int:
    if tx.value("schema_table") is None:
        return 0
    return int(tx.value("schema_version") or 0)


def _compare(version: int) -> None:
    require_version(version, CURRENT, "the tables")


def _upgrade(tx: Tx) -> int:
    version = _version(tx)
    if version > CURRENT:
        _compare(version)
    for number, script in MIGRATIONS.items():
        if number > version:
            for statement in _split(script):
                tx.script_step(statement)
            tx.run("set_schema_version", {"version": number})
    return CURRENT


def _split(script: str) -> Iterator[str]:
    """Yield the statements of a script; `executescript` would commit in the middle of the transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if line.rstrip().endswith(";") and sqlite3.complete_statement(statement):
            yield statement
            statement = ""
