"""Run verbs in the caller's open transaction.

If one of our statements fails, the transaction has failed: the caller must roll it back, or roll back to its last
savepoint. Nothing is begun, committed, rolled back or repeated here.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection, Connection

from holdfast.backends.postgres.error_map import translate
from holdfast.backends.postgres.execute import drive, drive_blocking
from holdfast.backends.postgres.location import PostgresLocation
from holdfast.backends.postgres.statements import Statements
from holdfast.backends.postgres.using import asyncpg
from holdfast.backends.postgres.using.adapter import Async, AsyncpgConnection, Blocking, Kind, has_failed
from holdfast.backends.postgres.using.detect import recognise
from holdfast.backends.postgres.using.identity import Identity, look
from holdfast.concurrency.statement_threads import in_own_thread, where_it_may_wait
from holdfast.errors import Unsupported
from holdfast.store.steps import Ready, Steps, Verb

T = TypeVar("T")
_WHERE = "the caller's connection"
_FAILED_BEFORE = "25P02"


class Callers:
    """The connections that callers pass, of any kind."""

    def __init__(self, location: PostgresLocation, statements: Statements) -> None:
        self._statements = statements
        self._identity = Identity(location, statements)

    def runner(self, using: object) -> CallersRunner:
        """Return the runner for a caller's connection; raises `ConfigError` if it cannot be used."""
        return CallersRunner(self, recognise(using))

    def run_blocking(self, using: object, steps: Steps[T]) -> T:
        """Run a verb now, in this thread."""
        kind = recognise(using)
        if isinstance(kind, Async):
            message = (
                f"{type(using).__name__} is async, and this call is not: in an `async def`, await ctx.complete(using=…)"
            )
            raise Unsupported(message)
        return self.drive_blocking(kind, steps)

    def drive_blocking(self, kind: Blocking, steps: Steps[T]) -> T:
        """Run a verb in this thread."""
        raw = kind.reach()
        with _explained(raw):
            if not self._identity.is_known(raw):
                self._identity.compare(raw, drive_blocking(raw, self._statements, look(), Ready()))
            return drive_blocking(raw, self._statements, steps, Ready())

    async def drive(self, kind: Async, steps: Steps[T]) -> T:
        """Run a verb on a connection whose calls are awaited."""
        raw = await kind.reach()
        with _explained(raw):
            if not self._identity.is_known(raw):
                found = await self._drive(raw, look())
                await in_own_thread(lambda: self._identity.compare(raw, found))
            return await self._drive(raw, steps)

    async def _drive(self, raw: AsyncConnection[Any] | AsyncpgConnection, steps: Steps[T]) -> T:
        if isinstance(raw, AsyncConnection):
            return await drive(raw, self._statements, steps, Ready())
        return await asyncpg.drive(raw, self._statements, steps)


class CallersRunner:
    """`Runner` in one caller's transaction: every kind of verb runs immediately, in that transaction.

    No job is reported as ready: the caller's writes become visible at a commit that is not observed here.
    """

    def __init__(self, callers: Callers, kind: Kind) -> None:
        self._callers = callers
        self._kind = kind

    async def write(self, verb: Verb[T]) -> T:
        """Run a verb; a blocking connection is used in a thread, so that lock waits do not block the event loop."""
        kind, callers = self._kind, self._callers
        if isinstance(kind, Async):
            return await callers.drive(kind, verb())
        return await where_it_may_wait(lambda: callers.drive_blocking(kind, verb()))

    async def once(self, verb: Verb[T]) -> T:
        """Run a verb."""
        return await self.write(verb)

    async def at_once(self, verb: Verb[T]) -> T:
        """Run a verb."""
        return await self.write(verb)

    async def look(self, verb: Verb[T]) -> T:
        """Run a verb."""
        return await self.write(verb)

    async def read(self, verb: Verb[T]) -> T:
        """Run a verb."""
        return await self.write(verb)


@contextmanager
def _explained(raw: Connection[Any] | AsyncConnection[Any] | AsyncpgConnection) -> Generator[None]:
    try:
        yield
    except psycopg.Error as error:
        if error.sqlstate == _FAILED_BEFORE:
            raise has_failed() from error
        broken = raw.closed if isinstance(raw, Connection | AsyncConnection) else raw.is_closed()
        raise translate(error, _WHERE, broken=broken) from error
