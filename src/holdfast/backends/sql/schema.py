"""The tables: numbered files under `migrations/`, applied in order, in one transaction, by one process at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

from holdfast.backends.sql.steps import run, value
from holdfast.errors import OutcomeUnknown, SchemaMismatch, StoreError, StoreUnavailable
from holdfast.store.schema_version import require_version
from holdfast.store.steps import Runner, Steps


class Upgrade(NamedTuple):
    """The versions of the tables before and after; 0: there were none."""

    before: int
    after: int


class SqlSchema(ABC):
    """`Schema` on a SQL store. `where` names the tables in errors, `installs`: whether `open` may install them."""

    role: str | None = None
    """Which role may install the tables, on a store with roles."""

    def __init__(self, runner: Runner, migrations: Mapping[int, str], where: str, *, installs: bool = True) -> None:
        self._runner = runner
        self._migrations = migrations
        self._where = where
        self._installs = installs

    @abstractmethod
    def lock(self) -> Steps[None]:
        """Wait until no other process migrates, and prepare the place of the tables."""

    @abstractmethod
    def apply(self, text: str) -> Steps[None]:
        """Run the statements of a migration."""

    @abstractmethod
    def report_new(self) -> None:
        """Log that `open` has installed the tables."""

    @abstractmethod
    def script(self) -> str: ...  # noqa: D102 - the port states the contracts

    async def install(self, *, only_existing: bool = False) -> int:
        """Upgrade the tables to this version; idempotent, and safe when several processes call it at once."""
        if only_existing and not await self._runner.read(self.version):
            self.require(0)
        return self.require((await self._runner.write(self._upgrade)).after)

    async def check(self) -> int:
        """Return the version of the tables; raise `SchemaMismatch` unless it is the current one."""
        return self.require(await self._runner.read(self.version))

    async def open(self, *, install: bool = True) -> None:
        """Install into a database without our tables, if allowed and wanted; raise `SchemaMismatch` for others."""
        version = await self._runner.read(self.version)
        if version == 0 and install and self._installs:
            try:
                found = await self._runner.write(lambda: self._upgrade(only_first=True))
            except StoreError as error:
                if self.role is None or isinstance(error, StoreUnavailable):
                    raise
                if isinstance(error, OutcomeUnknown):  # safe to open again: that finds out whether it was installed
                    raise StoreUnavailable(str(error)) from error
                message = f"{self._where} are missing and could not be installed ({error}): run "
                raise SchemaMismatch(message + f"`holdfast schema install` as {self.role}") from error
            version = found.after
            if not found.before:
                self.report_new()
        self.require(version)

    def version(self) -> Steps[int]:
        """Return the version of the tables; 0 if there are none."""
        if not (yield from value("has_meta_table")):
            return 0
        return int((yield from value("schema_version")) or 0)

    def _upgrade(self, *, only_first: bool = False) -> Steps[Upgrade]:
        yield from self.lock()
        version = yield from self.version()
        if only_first and version:
            return Upgrade(version, version)
        for number, text in self._migrations.items():
            if number > version:
                yield from self.apply(text)
                yield from run("set_schema_version", version=number)
        return Upgrade(version, max(version, *self._migrations))

    def require(self, version: int) -> int:
        """Return the version; raise `SchemaMismatch`, with the remedy, unless it is the current one."""
        require_version(version, max(self._migrations), self._where)
        return version
