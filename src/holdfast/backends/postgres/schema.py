"""The tables in a schema of the database: the shared code, under a lock of the server."""

from __future__ import annotations

import logging

from holdfast.backends.postgres.location import PostgresLocation, quoted
from holdfast.backends.postgres.runners import PoolRunner
from holdfast.backends.postgres.statements import TEMPLATES, fill_in
from holdfast.backends.sql.files import migrations
from holdfast.backends.sql.schema import SqlSchema
from holdfast.backends.sql.steps import rows, script, value
from holdfast.store.steps import Steps

_logger = logging.getLogger("holdfast.postgres")
# A migration that does not get its lock soon gives up: otherwise all traffic would queue behind it.
_LOCK_TIMEOUT = "set local lock_timeout = '5s'"

MIGRATIONS = migrations("holdfast.backends.postgres")


class PostgresSchema(SqlSchema):
    """`Schema` on PostgreSQL."""

    role = "a role that may create a schema"

    def __init__(self, runner: PoolRunner, location: PostgresLocation) -> None:
        where = f"{location.url}: the tables in the schema {location.schema}"
        super().__init__(runner, MIGRATIONS, where, installs=location.install == "auto")
        self._schema = location.schema
        self._url = location.url

    def lock(self) -> Steps[None]:  # noqa: D102
        yield from script(_LOCK_TIMEOUT)
        yield from rows("migration_lock")
        if not (yield from value("has_schema")):
            yield from script(f"create schema {quoted(self._schema)}")

    def apply(self, text: str) -> Steps[None]:  # noqa: D102
        return script(fill_in(text, self._schema))

    def report_new(self) -> None:
        """Log that the tables are new: the schema may be a mistyped name."""
        _logger.info(
            "%s: installed the tables in the new schema %s; if its name is mistyped, stop this program and drop that "
            "schema",
            *(self._url, self._schema),
        )

    def script(self) -> str:
        """Return the SQL that `install` runs on an empty database."""
        version = TEMPLATES["set_schema_version"].replace("%(version)s", str(max(MIGRATIONS))) + ";"
        parts = ["create schema if not exists {schema};", *MIGRATIONS.values(), version]
        return "\n\n".join(fill_in(part, self._schema) for part in parts)
