"""MySQL or MariaDB as a place for the arena: a database of its own, a connection for each side, and one to look on."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from typing import Any

from tests.interleavings.arena import SIDES, Arena
from tests.interleavings.operations import Instant
from tests.interleavings.orders import Footprint
from tests.interleavings.runner import SteppedVerbs, SteppingRunner
from tests.interleavings.stepping import Side
from tests.interleavings.tables import TABLES, Rows

from holdfast.backends.mysql.backend import MysqlBackend
from holdfast.backends.mysql.connecting import connect
from holdfast.backends.mysql.driver import VerbConnection, drop, is_open
from holdfast.backends.mysql.error_map import is_conflict, is_duplicate
from holdfast.backends.mysql.execute import Committed, Final, Session
from holdfast.backends.mysql.job_rows import MysqlJobRows
from holdfast.backends.mysql.jobs import MysqlJobs
from holdfast.backends.mysql.location import MysqlLocation
from holdfast.backends.mysql.statements import TEMPLATES, MysqlStatements, quoted
from holdfast.backends.mysql.verbs.extend import extend_many
from holdfast.backends.sql.fenced_verbs import fenced_verbs
from holdfast.backends.sql.steps import Together
from holdfast.store.claim_floor import Floors
from holdfast.store.steps import BecameReady
from holdfast.testing.stores import open_store

_TABLE = re.compile(r"\bholdfast_(\w+)")
_WRITTEN = re.compile(r"(?:insert into|delete from|update) holdfast_(\w+)")
# Rows are only ever added to these, by a number that the server generates: their order does not matter.
_APPENDED_TO = re.compile(r"insert into holdfast_(?:tally|fence)\b")
_LOCKING = re.compile(r"\bfor update\b|\block in share mode\b|^delete \w+ from|^update \(", re.MULTILINE)
_BURN = (  # so that no job enqueued later has the number behind that of a kept one: ranges would be others
    "start transaction; insert into holdfast_job (id, lane_id, payload, priority, max_attempts, enqueued_at, turn,"
    " payload_bytes) values ('', 0, '', 0, 0, 0, 0, 0); rollback"
)


@cache
def footprint(statement: str) -> Footprint:
    """Return the tables that a statement touches."""
    text = _APPENDED_TO.sub("", re.sub(r"(?m)^--.*$", "", TEMPLATES[statement])).strip()
    tables = frozenset(_TABLE.findall(text))
    return Footprint(reads=tables, locks=tables if _LOCKING.search(text) else frozenset(_WRITTEN.findall(text)))


class _Links:
    """A connection for each side, replaced if an order that was given up has broken it."""

    def __init__(self, location: MysqlLocation) -> None:
        self._location = location
        self._open: list[VerbConnection | None] = [None] * (SIDES + 1)

    async def of(self, number: int) -> VerbConnection:
        connection = self._open[number]
        if connection is None or not is_open(connection):
            connection = self._open[number] = await connect(self._location)
        return connection

    def thread(self, number: int) -> int:
        """Return the server's number of a side's session."""
        driver: Any = self._open[number]
        return 0 if driver is None else int(driver.thread_id())

    def close(self) -> None:
        for connection in self._open:
            if connection is not None:
                drop(connection)


class MysqlRunner(SteppingRunner):
    """A runner on a connection of asyncmy."""

    def __init__(self, side: Side, links: _Links, statements: MysqlStatements) -> None:
        super().__init__(side)
        self._links = links
        self._number = side.number
        self._statements = statements

    async def begin(self) -> None:
        await self._ask(["start transaction"])

    async def execute(self, word: str) -> Any:
        await self._ask([word])

    async def _ask(self, texts: list[str]) -> Any:
        return await (await self._links.of(self._number)).ask(texts)

    def is_conflict(self, error: BaseException) -> bool:
        return is_conflict(error) or is_duplicate(error)

    def is_handled(self, error: BaseException) -> bool:
        return is_duplicate(error)

    async def answer(self, asked: Any) -> Any:
        if isinstance(asked, BecameReady):
            return []
        if isinstance(asked, Committed):  # read committed: its own reads show what is committed
            return None
        if isinstance(asked, Together | Final):  # others' statements may run between them, and before the end
            return [await self.answer(one) for one in asked.asks]
        request = Session(self._statements).request(asked)
        touched = footprint(asked.statement)

        async def act() -> Any:
            self.holds(touched)  # whatever it finds: a duplicate is locked, and so may be a row with another fence
            return request.answer(await self._ask(request.texts))

        return await self.step(asked.statement, touched, act)


def _literal(value: Any) -> str:
    return "null" if value is None else quoted(value) if isinstance(value, str) else repr(value)


class MysqlTables:
    """The tables of one database, and the waits of its sessions, read on a separate connection."""

    def __init__(self, links: _Links, columns: dict[str, list[str]]) -> None:
        self._links = links
        self._columns = columns
        self._restore: dict[str, list[str]] = {}
        self._clear = [f"delete from holdfast_{name}" for name in TABLES]  # noqa: S608 - our names
        self._read = [f"select {', '.join(columns[name])} from holdfast_{name}" for name in TABLES]  # noqa: S608

    @classmethod
    async def of(cls, links: _Links) -> MysqlTables:
        found = await (await links.of(SIDES)).ask([f"show columns from holdfast_{name}" for name in TABLES])
        columns = [[str(row[0]) for row in result.rows or ()] for result in found]
        return cls(links, dict(zip(TABLES, columns, strict=True)))

    async def _ask(self, texts: list[str]) -> Any:
        return await (await self._links.of(SIDES)).ask(texts)

    async def clear(self) -> None:
        """Empty all tables."""
        await self._ask(self._clear)

    async def keep(self, state: str) -> None:
        """Remember what the tables hold now."""
        self._restore[state] = ["start transaction", *self._clear]
        for name, rows in (await self.read()).items():
            if rows:
                values = ", ".join(f"({', '.join(map(_literal, row.values()))})" for row in rows)
                names = ", ".join(self._columns[name])
                self._restore[state].append(f"insert into holdfast_{name} ({names}) values {values}")  # noqa: S608
        self._restore[state].append("commit")
        await self._ask([_BURN])

    async def restore(self, state: str) -> None:
        """Put back what was remembered."""
        await self._ask(self._restore[state])

    async def read(self) -> Rows:
        """Return all rows."""
        found = await self._ask(self._read)
        return {
            name: [dict(zip(self._columns[name], row, strict=True)) for row in result.rows]
            for name, result in zip(TABLES, found, strict=True)
        }

    async def blockers(self, sides: Sequence[int]) -> dict[int, set[int]]:
        """Return for each of these sides those whose locks it may wait for; none if it does not wait."""
        threads = {self._links.thread(side): side for side in range(SIDES)}
        waits: dict[int, set[int]] = {side: set() for side in sides}
        # The tables of lock waits are a tenth of a second old on MariaDB, and name wrong sessions on MySQL. The server
        # breaks a circle at once, so a side that waits does so for one that can go on.
        (status,) = await self._ask(["show engine innodb status"])
        for transaction in status.rows[0][2].split("---TRANSACTION")[1:]:
            found = re.search(r"thread id (\d+),", transaction)
            side = threads.get(int(found[1])) if found else None
            if side in waits and "LOCK WAIT" in transaction:
                waits[side] = set(range(SIDES)) - {side}
        return waits


@asynccontextmanager
async def open_mysql_arena(url: str) -> AsyncIterator[Arena]:
    """Open an arena in a database without jobs."""
    clock = Instant()
    async with AsyncExitStack() as stack:
        backend = await stack.enter_async_context(open_store(url, clock=clock))
        assert isinstance(backend, MysqlBackend)
        links = _Links(MysqlLocation.parse(url))
        stack.callback(links.close)
        whole, rows = backend.jobs, MysqlJobRows()
        assert isinstance(whole, MysqlJobs)

        def verbs(side: Side) -> SteppedVerbs:
            runner = MysqlRunner(side, links, backend._statements)
            jobs = MysqlJobs(runner, rows, lanes=whole._lanes, floors=Floors())
            return SteppedVerbs(runner, jobs, fenced_verbs(rows), extend_many)

        arena = await Arena.open(backend, clock, await MysqlTables.of(links), verbs)
        arena.divergences = 20  # an insert may wait for the deleted rows of the order before, until they are purged
        yield arena
