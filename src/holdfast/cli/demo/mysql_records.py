"""The demo on MySQL and MariaDB: its store is a separate database, and tables are created outside of transactions.

These servers commit before and after each statement that creates or drops a table, so that none of those can run in the
transaction of a visit. What a visit writes commits together, as on the other stores.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from holdfast.cli.demo.records import Records
from holdfast.cli.demo.target import TABLES

if TYPE_CHECKING:
    from holdfast.cli.demo.plan import DemoPlan, DemoRun


class MysqlRecords(Records):
    """The run and its jobs in a database."""

    @property
    def _database(self) -> str:
        return unquote(urlsplit(self.app.backend.url).path.strip("/"))

    @property
    def place(self) -> str:
        """The demo's separate store, for messages."""
        return f"database {self._database} at {self.app.backend.url.partition('?')[0]}"

    async def create_place(self) -> None:
        """Create the database, unless it is there."""
        await self._run(f"create database if not exists `{self._database}` character set utf8mb4")

    async def begin(self, plan: DemoPlan) -> DemoRun:
        """Create the tables and record a new run."""
        texts = self.statements.statements
        steps = [texts[f"{step}_{table}"] for table in TABLES for step in ("drop", "create")]
        await self._run(*steps, *(texts[f"index_{table}"] for table in TABLES[1:]))
        return await super().begin(plan)

    async def _create(self, link: Any) -> None:
        """Do nothing: the tables are there."""

    async def _drop(self) -> None:
        await self._run(*(self.statements.statements[f"drop_{table}"] for table in TABLES))

    async def drop_schema(self) -> None:
        """Drop the database with everything in it."""
        await self._run(f"drop database `{self._database}`")

    async def _run(self, *statements: str) -> None:
        from holdfast.testing.mysql_statements import run_alone  # only here: other stores do not need the driver

        await asyncio.to_thread(run_alone, self.app.backend.full_url or self.app.backend.url, *statements)
