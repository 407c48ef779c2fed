"""The tables in a file: the shared code, under the write lock; a file of another program is not changed."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from holdfast.backends.sql.files import migrations
from holdfast.backends.sql.schema import SqlSchema, Upgrade
from holdfast.backends.sqlite.connection import Tx, looking_at
from holdfast.backends.sqlite.execute import direct, drive
from holdfast.backends.sqlite.location import SqliteLocation
from holdfast.backends.sqlite.statements import STATEMENTS
from holdfast.backends.sqlite.versions import log_faults
from holdfast.store.steps import Ready, Runner, Steps

_logger = logging.getLogger("holdfast.sqlite")
MIGRATIONS = migrations("holdfast.backends.sqlite")


class SqliteSchema(SqlSchema):
    """`Schema` on SQLite."""

    def __init__(self, runner: Runner, location: SqliteLocation) -> None:
        super().__init__(runner, MIGRATIONS, "the tables")
        self._location = location

    async def check(self) -> int:
        """Return the version of the tables, or raise `SchemaMismatch`; never change another program's file.

        So the file is first read through a read-only connection. A file that already uses a write-ahead log is then
        read through a normal connection, which changes nothing: the last connection to close removes the log, which a
        read-only one cannot do.
        """
        path = self._location.path
        found = None if path is None else await asyncio.to_thread(self._look, path)
        return await super().check() if found is None else self.require(found)

    def _look(self, path: Path) -> int | None:
        """Return the version of the tables in a file, 0 without tables; None if the file uses a write-ahead log."""
        if not path.exists():
            return 0
        with looking_at(path, timeout=self._location.busy_timeout) as tx:
            return None if tx.pragma("journal_mode") == "wal" else drive(tx, self.version(), Ready())

    def _upgrade(self, *, only_first: bool = False) -> Steps[Upgrade]:
        upgrade = yield from super()._upgrade(only_first=only_first)
        if not upgrade.before and self._location.path is not None:
            log_faults()
        return upgrade

    def report_new(self) -> None:
        """Log it for a file; a store in memory is always new."""
        if self._location.path is not None:
            _logger.info("created the tables in %s", self._location.path)

    def lock(self) -> Steps[None]:
        """Do nothing: the write lock is held."""
        yield from ()

    def apply(self, text: str) -> Steps[None]:  # noqa: D102
        def run(tx: Tx) -> None:
            for statement in _split(text):
                tx.raw.execute(statement)

        yield from direct(run)()

    def script(self) -> str:
        """Return the SQL that `install` runs on an empty database."""
        version = STATEMENTS["set_schema_version"].replace(":version", str(max(MIGRATIONS)))
        return "\n".join([*MIGRATIONS.values(), f"{version};\n"])


def _split(script: str) -> Iterator[str]:
    """Yield the statements of a script; `executescript` would commit in the middle of the transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if line.rstrip().endswith(";") and sqlite3.complete_statement(statement):
            yield statement
            statement = ""
