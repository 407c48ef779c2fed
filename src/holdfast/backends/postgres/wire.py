"""Connections that bypass the driver's cursors: statements go straight to libpq.

A cursor works out at every run what is constant for a statement, and sends one statement at a time.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import psycopg
from psycopg import AsyncConnection
from psycopg.abc import Buffer
from psycopg.abc import Transformer as Adaptation
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ConnStatus, ExecStatus, Format
from psycopg.pq.abc import PGconn, PGresult
from psycopg.waiting import Ready, Wait

_PLACE = re.compile(rb"%\((\w+)\)s|%%")
_TIMEOUT = 5.0  # seconds for the server to cancel a statement
Send = Callable[[PGconn], None]
Exchange = Generator[Wait, Ready | None, list[PGresult]]


class Filled(NamedTuple):
    """A statement with its parameters."""

    query: bytes
    values: Sequence[Buffer | None]
    transformer: Adaptation

    def send(self, session: PGconn) -> None:
        """Send the statement, unprepared: the server parses, plans and runs it."""
        adapted = self.transformer
        session.send_query_params(
            self.query,
            self.values,
            param_types=adapted.types,
            param_formats=adapted.formats,
            result_format=Format.BINARY,
        )

    def rows(self, result: PGresult) -> list[Any]:
        """Return the rows of the result."""
        if result.status != ExecStatus.TUPLES_OK:
            return [()] * (result.command_tuples or 0)
        self.transformer.set_pgresult(result)
        return self.transformer.load_rows(0, result.ntuples, tuple)


def fill(connection: AsyncConnection[Any], text: bytes, parameters: Mapping[str, object]) -> Filled:
    """Bind parameters, adapted by the driver, to a statement."""
    query, names, formats = _numbered(text)
    transformer = Transformer(connection)
    return Filled(query, transformer.dump_sequence([parameters[name] for name in names], formats), transformer)


class LibpqConnection(AsyncConnection[Any]):
    """A connection with a direct path to libpq."""

    async def _answer(self) -> PGresult:
        """Wait for the result of the one statement that was sent; raises the server's error for it or its commit."""
        results = await self._answers(_exchange(self.pgconn, in_pipeline=False))
        return _checked(results[-1])

    async def _answers_together(self, send: Sequence[Send]) -> list[PGresult]:
        """Send statements in one round trip and return all results.

        Raises the server's error for the first that fails: earlier statements have run, the server skips later ones.
        """
        self.pgconn.enter_pipeline_mode()
        try:
            for one in send:
                one(self.pgconn)
            self.pgconn.pipeline_sync()
            results = await self._answers(_exchange(self.pgconn, in_pipeline=True))
        finally:
            self._leave_pipeline()
        return [_checked(result) for result in results]

    def _leave_pipeline(self) -> None:
        try:
            if self.pgconn.status == ConnStatus.OK:
                self.pgconn.exit_pipeline_mode()
        except psycopg.OperationalError:  # replies are outstanding, and no task waits for them
            self.pgconn.finish()

    async def _answers(self, exchange: Exchange) -> list[PGresult]:
        """Wait for the results of the statements that were sent.

        If the wait is cancelled, the statement is cancelled on the server, and the session stays usable. A second
        cancellation meanwhile closes the session instead of waiting for that.
        """
        try:
            return await self._led(exchange)
        except asyncio.CancelledError:
            try:
                async with asyncio.timeout(_TIMEOUT):
                    await self.cancel_safe(timeout=_TIMEOUT)
                    await self._led(exchange)
            except (psycopg.Error, TimeoutError):
                self.pgconn.finish()
            except BaseException:
                self.pgconn.finish()
                raise
            raise

    async def _led(self, exchange: Exchange) -> list[PGresult]:
        loop = asyncio.get_running_loop()
        descriptor = self.pgconn.socket
        reader = _Waiter(loop)
        loop.add_reader(descriptor, reader.settle, Ready.R)  # once: a long result arrives in many pieces
        try:
            wanted = next(exchange)
            while True:
                if wanted & Wait.W:
                    loop.add_writer(descriptor, reader.settle, Ready.W)
                try:
                    ready = await reader.next()
                finally:
                    if wanted & Wait.W:
                        loop.remove_writer(descriptor)
                wanted = exchange.send(ready)
        except StopIteration as stop:
            results: list[PGresult] = stop.value
            return results
        finally:
            loop.remove_reader(descriptor)


class _Waiter:
    """Waits repeatedly for the same socket."""

    __slots__ = ("_future", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._future: asyncio.Future[Ready] | None = None

    def next(self) -> asyncio.Future[Ready]:
        """Return a future for the socket's next readiness; readiness from before this call is reported again."""
        self._future = self._loop.create_future()
        return self._future

    def settle(self, how: Ready) -> None:
        """Record that the socket is ready."""
        if self._future is not None and not self._future.done():
            self._future.set_result(how)


def _exchange(session: PGconn, *, in_pipeline: bool) -> Exchange:
    """Flush the output and read all results, without blocking.

    Returns the results up to the first that failed: one for each statement, and one more if the implicit commit of the
    server failed. Until the server is ready for the next statement, nothing is known to be committed: if it closes the
    connection before that without an error message, this raises `OperationalError`.
    """
    results: list[PGresult] = []
    try:
        yield from _send(session)
        yield from _take_in(session, results, in_pipeline=in_pipeline)
    except psycopg.OperationalError:
        if not _has_failed(results):  # else the server sent the reason before it closed the connection
            raise
    return results


def _take_in(session: PGconn, results: list[PGresult], *, in_pipeline: bool) -> Generator[Wait, Ready | None, None]:
    was_none = False
    while True:
        result = yield from _next_result(session)
        if result is None and (was_none or not in_pipeline):
            # In a pipeline, one None follows each result; a second None means that the connection is closed.
            if in_pipeline or not results or session.status != ConnStatus.OK:
                message = "the server closed the connection before it had sent all results"
                raise psycopg.OperationalError(message)
            return
        was_none = result is None
        if result is None or result.status == ExecStatus.PIPELINE_ABORTED:
            continue
        if result.status == ExecStatus.PIPELINE_SYNC:
            return
        results.append(result)


def _has_failed(results: Sequence[PGresult]) -> bool:
    return bool(results) and results[-1].status == ExecStatus.FATAL_ERROR


def _send(session: PGconn) -> Generator[Wait, Ready | None, None]:
    while session.flush():
        ready = yield Wait.RW  # None: the wait was cancelled, and another one follows
        if ready is None or ready & Ready.R:
            session.consume_input()


def _next_result(session: PGconn) -> Generator[Wait, Ready | None, PGresult | None]:
    while session.is_busy():
        yield Wait.R
        session.consume_input()
    return session.get_result()


def _checked(result: PGresult) -> PGresult:
    """Return a result; raises the server's error if it is one."""
    if result.status == ExecStatus.FATAL_ERROR:
        raise psycopg.errors.error_from_result(result)
    return result


@lru_cache(maxsize=1000)
def _numbered(text: bytes) -> tuple[bytes, list[str], list[PyFormat]]:
    """Return a statement with numbered parameters in place of named ones, and the names in numeric order."""
    names: list[str] = []

    def place(match: re.Match[bytes]) -> bytes:
        if match[1] is None:
            return b"%"
        name = match[1].decode()
        if name not in names:
            names.append(name)
        return b"$%d" % (names.index(name) + 1)

    query = _PLACE.sub(place, text)
    return query, names, [PyFormat.AUTO] * len(names)
