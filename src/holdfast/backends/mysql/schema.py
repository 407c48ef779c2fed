"""The tables in the database: the shared code, under a lock of the server.

The server commits around each statement that creates or alters a table, so a migration is not undone when it stops:
every one can be repeated.
"""

from __future__ import annotations

import logging

from holdfast.backends.mysql.location import MysqlLocation
from holdfast.backends.mysql.runners import MysqlPoolRunner
from holdfast.backends.mysql.statements import TABLE_OPTIONS, TEMPLATES
from holdfast.backends.sql.files import migrations
from holdfast.backends.sql.schema import SqlSchema
from holdfast.backends.sql.steps import script, value
from holdfast.errors import StoreUnavailable
from holdfast.store.steps import Steps

_logger = logging.getLogger("holdfast.mysql")
MIGRATIONS = migrations("holdfast.backends.mysql")
_PATIENCE = 20  # seconds for another process that installs
# A migration that does not get its lock soon gives up: otherwise all traffic would queue behind it. The session, with
# this and with the lock of the migration, is not used again.
_LOCK_TIMEOUT = "set session lock_wait_timeout = 2"


class MysqlSchema(SqlSchema):
    """`Schema` on MySQL and MariaDB."""

    role = "a user that may create tables"

    def __init__(self, runner: MysqlPoolRunner, location: MysqlLocation) -> None:
        where = f"{location.url}: the tables holdfast_… in the database {location.database}"
        super().__init__(runner, MIGRATIONS, where, installs=location.install == "auto")
        self._location = location

    def lock(self) -> Steps[None]:  # noqa: D102
        yield from script(_LOCK_TIMEOUT)
        if (yield from value("migration_lock", seconds=self._location.lock_wait(_PATIENCE))) != 1:
            raise StoreUnavailable(f"{self._location.url}: another process is installing the tables: try again")

    def apply(self, text: str) -> Steps[None]:  # noqa: D102
        return script(text.replace("{table}", TABLE_OPTIONS))

    def report_new(self) -> None:
        """Log that the tables are new: the database may be a wrong one."""
        _logger.info("%s: installed the tables holdfast_… in the database", self._location.url)

    def script(self) -> str:
        """Return the SQL that `install` runs on an empty database."""
        version = TEMPLATES["set_schema_version"].replace(":version", str(max(MIGRATIONS))) + ";\n"
        return "\n".join([*(text.replace("{table}", TABLE_OPTIONS) for text in MIGRATIONS.values()), version])
