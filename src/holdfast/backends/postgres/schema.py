"""The schema: numbered files under `migrations/`, applied in order, in one transaction, by one process at a time."""

from __future__ import annotations

from holdfast.backends.postgres.location import PostgresLocation, quoted
from holdfast.backends.postgres.runners import PoolRunner
from holdfast.backends.postgres.statements import TEMPLATES, fill_in
from holdfast.backends.sql.files import migrations
from holdfast.backends.sql.steps import rows, run, script, value
from holdfast.errors import OutcomeUnknown, SchemaMismatch, StoreError, StoreUnavailable
from holdfast.store.schema_version import require_version
from holdfast.store.steps import Steps

# A migration that does not get its lock soon gives up: otherwise all traffic would queue behind it.
_LOCK_TIMEOUT = "set local lock_timeout = '5s'"

MIGRATIONS = migrations("holdfast.backends.postgres")
CURRENT = max(MIGRATIONS)


class PostgresSchema:
    """`Schema` on PostgreSQL."""

    def __init__(self, runner: PoolRunner, location: PostgresLocation) -> None:
        self._runner = runner
        self._location = location

    async def install(self) -> int:
        """Bring the tables to this version; idempotent, and safe when several processes do it at once."""
        return await self._runner.write(lambda: _upgrade(self._location.schema))

    async def check(self) -> None:
        """Raise `SchemaMismatch` unless the tables have this version."""
        self._compare(await self._runner.read(lambda: _version(self._location.schema)))

    async def open(self) -> None:
        """Install into a database without our schema, if allowed; raise `SchemaMismatch` for an older or newer one."""
        version = await self._runner.read(lambda: _version(self._location.schema))
        if version == 0 and self._location.install:
            try:
                version = await self._runner.write(lambda: _install_first(self._location.schema))
            except OutcomeUnknown as error:  # safe to open again: that finds out whether it was installed
                raise StoreUnavailable(str(error)) from error
            except StoreUnavailable:
                raise
            except StoreError as error:
                message = f"{self._location.url}: the tables are missing and could not be installed ({error}): run "
                raise SchemaMismatch(
                    message + "`holdfast schema install` as a role that may create a schema"
                ) from error
        self._compare(version)

    def script(self) -> str:
        """Return the SQL that `install` runs on an empty database."""
        schema = self._location.schema
        version = TEMPLATES["set_schema_version"].replace("%(version)s", str(CURRENT)) + ";"
        parts = [f"create schema if not exists {quoted(schema)};", *MIGRATIONS.values(), version]
        return "\n\n".join(fill_in(part, schema) for part in parts)

    def _compare(self, version: int) -> None:
        require_version(version, CURRENT, f"{self._location.url}: the tables in the schema {self._location.schema}")


def _version(schema: str) -> Steps[int]:
    if not (yield from value("has_meta_table", schema=schema)):
        return 0
    return int((yield from value("schema_version")))


def _begin_migration(schema: str) -> Steps[int]:
    yield from script(_LOCK_TIMEOUT)
    yield from rows("migration_lock", name=f"holdfast schema {schema}")
    return (yield from _version(schema))


def _install_first(schema: str) -> Steps[int]:
    version = yield from _begin_migration(schema)
    return version or (yield from _apply(schema, 0))


def _upgrade(schema: str) -> Steps[int]:
    version = yield from _begin_migration(schema)
    if version > CURRENT:
        return version
    return (yield from _apply(schema, version))


def _apply(schema: str, version: int) -> Steps[int]:
    if not (yield from value("has_schema", schema=schema)):
        yield from script(f"create schema {quoted(schema)}")
    for number, text in MIGRATIONS.items():
        if number > version:
            yield from script(fill_in(text, schema))
            yield from run("set_schema_version", version=number)
    return CURRENT
