"""Connections that bypass the driver's cursors: statements go straight to libpq.

A cursor sends one statement at a time, and works out at every run what is constant for a statement: the positions of
its parameters, whether it is prepared, the columns of its result. For an enqueue or a claim of one job that is most of
the client's time. Here only the driver's adaptation of values is used: a single insert takes 106 µs of CPU time instead
of 146.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Generator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import psycopg
from psycopg import AsyncConnection
from psycopg.abc import Buffer
from psycopg.abc import Transformer as Adaptation
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ConnStatus, ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult
from psycopg.waiting import Ready, Wait

_PLACE = re.compile(rb"%\((\w+)\)s|%%")
_TIMEOUT = 5.0  # seconds for the server to cancel a statement
_MOST = 200  # prepared statements of one session; a statement counts once for each combination of parameter types
_NOTHING: Mapping[str, object] = {}
Query = tuple[bytes, Mapping[str, object]]
Exchange = Generator[Wait, Ready | None, list[PGresult]]


class Filled(NamedTuple):
    """A statement with its parameters."""

    query: bytes
    values: Sequence[Buffer | None]
    transformer: Adaptation

    def send(self, session: PGconn, name: bytes | None) -> None:
        """Send the statement: the prepared one of this name; without a name the server parses and plans it now."""
        types, formats = self.transformer.types, self.transformer.formats
        if name is not None:
            session.send_query_prepared(name, self.values, param_formats=formats, result_format=Format.BINARY)
        else:
            session.send_query_params(
                self.query, self.values, param_types=types, param_formats=formats, result_format=Format.BINARY
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

    async def _rows_together(self, asked: Sequence[tuple[Filled, bytes | None]]) -> list[list[Any]]:
        """Send statements, each with the name under which it is prepared, in one round trip; return the rows of each.

        Raises the server's error for the first that fails: earlier statements have run, the server skips later ones.
        """
        self.pgconn.enter_pipeline_mode()
        try:
            for filled, name in asked:
                filled.send(self.pgconn, name)
            self.pgconn.pipeline_sync()
            results = await self._answers(_exchange(self.pgconn, in_pipeline=True))
        finally:
            self._leave_pipeline()
        checked = [_checked(result) for result in results]
        return [filled.rows(result) for (filled, _), result in zip(asked, checked, strict=True)]

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
        readiness: asyncio.Future[Ready] = loop.create_future()

        def settle(how: Ready) -> None:
            if not readiness.done():  # else it is reported again
                readiness.set_result(how)

        loop.add_reader(descriptor, settle, Ready.R)  # once: a long result arrives in many pieces
        try:
            wanted = next(exchange)
            while True:
                if wanted & Wait.W:
                    loop.add_writer(descriptor, settle, Ready.W)
                try:
                    ready = await readiness
                finally:
                    if wanted & Wait.W:
                        loop.remove_writer(descriptor)
                readiness = loop.create_future()
                wanted = exchange.send(ready)
        except StopIteration as stop:
            results: list[PGresult] = stop.value
            return results
        finally:
            loop.remove_reader(descriptor)


class FastConnection(LibpqConnection):
    """A connection on which only statements of the verbs run, one at a time."""

    prepared: dict[tuple[bytes, tuple[int, ...]], bytes] | None = None
    """The names of prepared statements; None where a pooler may be in front of the server."""

    frame: tuple[()] | tuple[bytes, bytes] = ()
    """What goes before and after statements outside a transaction, where the session's isolation is not ours to set."""

    _named = 0

    async def ask(self, text: bytes, parameters: Mapping[str, object]) -> list[Any]:
        """Run a statement and return its rows."""
        if self.frame:
            return (await self.ask_all([(text, parameters)], ()))[0]
        filled, name = await self._prepare(text, parameters)
        filled.send(self.pgconn, name)
        return filled.rows(await self._answer())

    async def ask_all(self, queries: Sequence[Query], frame: tuple[()] | tuple[bytes, bytes]) -> list[list[Any]]:
        """Run statements in one round trip and return the rows of each.

        `frame` begins and ends a transaction around them. After a statement that fails the server skips all later ones,
        the end of the transaction too, so that the session may be left inside the transaction.
        """
        if self.frame and self.pgconn.transaction_status == TransactionStatus.IDLE:
            frame = self.frame
        framed = [(frame[0], _NOTHING), *queries, (frame[1], _NOTHING)] if frame else queries
        answers = await self._rows_together([await self._prepare(*query) for query in framed])
        return answers[1:-1] if frame else answers

    async def _prepare(self, text: bytes, parameters: Mapping[str, object]) -> tuple[Filled, bytes | None]:
        """Return a statement, and the name under which it is prepared; None: it is to be sent unprepared."""
        filled = fill(self, text, parameters)
        prepared = self.prepared
        if prepared is None:
            return filled, None
        key = (filled.query, filled.transformer.types or ())
        name = prepared.get(key)
        if name is None and len(prepared) < _MOST:
            # Never reuse a name: the server may have prepared a statement whose sender was cancelled meanwhile.
            name = b"holdfast_%d" % self._named
            self._named += 1
            self.pgconn.send_prepare(name, filled.query, param_types=key[1])
            await self._answer()
            prepared[key] = name
        return filled, name


def _exchange(session: PGconn, *, in_pipeline: bool) -> Exchange:
    """Flush the output and read all results, without blocking.

    Returns the results up to the first that failed: one for each statement, and one more if the implicit commit of the
    server failed. Until the server is ready for the next statement, nothing is known to be committed: if it closes the
    connection before that without an error message, this raises `OperationalError`.
    """
    results: list[PGresult] = []
    try:
        while session.flush():
            ready = yield Wait.RW  # None: the wait was cancelled, and another one follows
            if ready is None or ready & Ready.R:
                session.consume_input()
        yield from _take_in(session, results, in_pipeline=in_pipeline)
    except psycopg.OperationalError:
        if not results or results[-1].status != ExecStatus.FATAL_ERROR:
            raise  # else the server sent the reason before it closed the connection
    return results


def _take_in(session: PGconn, results: list[PGresult], *, in_pipeline: bool) -> Generator[Wait, Ready | None, None]:
    was_none = False
    while True:
        while session.is_busy():
            yield Wait.R
            session.consume_input()
        result = session.get_result()
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
