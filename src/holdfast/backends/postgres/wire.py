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
from typing import Any, NamedTuple, TypeVar

import psycopg
from psycopg import AsyncConnection
from psycopg.abc import Buffer
from psycopg.abc import Transformer as Adaptation
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ConnStatus, ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult
from psycopg.waiting import Ready, Wait

from holdfast.concurrency.socket_watch import socket_watches

T = TypeVar("T")
_PLACE = re.compile(rb"%\((\w+)\)s|%%")
_TIMEOUT = 5.0  # seconds for the server to cancel a statement
_MOST = 200  # prepared statements of one session; a statement counts once for each combination of parameter types
_NOTHING: Mapping[str, object] = {}
Query = tuple[bytes, Mapping[str, object]]
Key = tuple[bytes, tuple[int, ...]]
Exchange = Generator[Wait, Ready | None, list[PGresult]]


class Filled(NamedTuple):
    """A statement with its parameters."""

    query: bytes
    values: Sequence[Buffer | None]
    transformer: Adaptation

    def send(self, session: PGconn, name: bytes) -> None:
        """Send the statement: the prepared one of this name; without a name the server parses and plans it now."""
        types, formats = self.transformer.types, self.transformer.formats
        if name:
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


class Asked(NamedTuple):
    """A statement to be sent: prepared under `name`, if it is not empty; with `key`, it is to be prepared first."""

    filled: Filled
    name: bytes = b""
    key: Key | None = None


def fill(connection: AsyncConnection[Any], text: bytes, parameters: Mapping[str, object]) -> Filled:
    """Bind parameters, adapted by the driver, to a statement."""
    query, names, formats = _numbered(text)
    transformer = Transformer(connection)
    return Filled(query, transformer.dump_sequence([parameters[name] for name in names], formats), transformer)


_PLAIN = Transformer()


def command(text: bytes) -> Filled:
    """Return a command: it has neither parameters nor rows, so all connections share it."""
    return Filled(text, (), _PLAIN)


class LibpqConnection(AsyncConnection[Any]):
    """A connection with a direct path to libpq."""

    prepared: dict[Key, bytes] | None = None
    """The names of prepared statements; None where a pooler may be in front of the server."""

    _named = 0

    async def _rows_together(self, asked: Sequence[Asked], *, to_the_end: bool = False) -> list[list[Any]]:
        """Send statements in one round trip, with the preparation of those that are new; return the rows of each.

        Raises the server's error for the first that fails: earlier statements have run, the server skips later ones.
        With `to_the_end` a cancellation takes effect after the answer.
        """
        session = self.pgconn
        session.enter_pipeline_mode()
        try:
            for filled, name, key in asked:
                if key is not None:
                    session.send_prepare(name, filled.query, param_types=key[1])
                filled.send(session, name)
            session.pipeline_sync()
            results = await self._answers(_exchange(session, in_pipeline=True), to_the_end=to_the_end)
        finally:
            self._leave_pipeline()
        answers = iter([_checked(result) for result in results])
        rows: list[list[Any]] = []
        for filled, name, key in asked:
            if key is not None and self.prepared is not None:
                next(answers)
                self.prepared[key] = name
            rows.append(filled.rows(next(answers)))
        return rows

    def _prepare(self, filled: Filled) -> Asked:
        """Return a statement with the name under which it is, or is to be, prepared."""
        prepared = self.prepared
        if prepared is None:
            return Asked(filled)
        key = (filled.query, filled.transformer.types or ())
        name = prepared.get(key)
        if name is not None or len(prepared) >= _MOST:
            return Asked(filled, name or b"")
        # Never reuse a name: the server may have prepared a statement whose sender was cancelled meanwhile.
        self._named += 1
        return Asked(filled, b"holdfast_%d" % self._named, key)

    def _leave_pipeline(self) -> None:
        try:
            if self.pgconn.status == ConnStatus.OK:
                self.pgconn.exit_pipeline_mode()
        except psycopg.OperationalError:  # replies are outstanding, and no task waits for them
            self.pgconn.finish()

    async def _answers(self, exchange: Generator[Any, Any, T], *, to_the_end: bool = False) -> T:
        """Wait for the end of an exchange with the server, and return what it returns.

        If the wait is cancelled, the statement is cancelled on the server, and the session stays usable. A second
        cancellation meanwhile closes the session instead of waiting for that. With `to_the_end` a cancellation takes
        effect after the exchange has ended; an error then becomes its cause.
        """
        try:
            return await self._led(exchange, to_the_end=to_the_end)
        except asyncio.CancelledError:
            if to_the_end:
                raise
            try:
                async with asyncio.timeout(_TIMEOUT):
                    await self.cancel_safe(timeout=_TIMEOUT)
                    await self._led(exchange)
            except psycopg.errors.QueryCanceled:
                pass  # as requested
            except (psycopg.Error, TimeoutError):
                self.pgconn.finish()
            except BaseException:
                self.pgconn.finish()
                raise
            raise

    async def _led(self, exchange: Generator[Any, Any, T], *, to_the_end: bool = False) -> T:
        """Lead an exchange to its end whenever the socket is ready: in the event loop, so that the task wakes once."""
        run = _Run(exchange, self.pgconn.socket)
        cancelled: asyncio.CancelledError | None = None
        run.advance(None)
        while run.waits:
            try:
                await run.wait()
            except asyncio.CancelledError as error:
                if not to_the_end:
                    run.stop()
                    raise
                cancelled = error
        if cancelled is not None:
            raise cancelled from run.error
        if run.error is not None:
            raise run.error
        return run.value  # type: ignore[no-any-return] # what the exchange returns


class _Run:
    """An exchange that the event loop advances."""

    __slots__ = ("_descriptor", "_exchange", "_wake", "_watch", "error", "value", "waits")

    def __init__(self, exchange: Generator[Any, Any, Any], descriptor: int) -> None:
        self._exchange = exchange
        self._descriptor = descriptor
        self._watch = socket_watches.here()
        self._wake: asyncio.Future[None] | None = None
        self.value: Any = None
        self.error: Exception | None = None
        self.waits = True

    def advance(self, ready: int | None) -> None:
        """Go on until the socket is to be waited for."""
        try:
            self._watch.arm(self._descriptor, self._exchange.send(ready), self.advance)
        except StopIteration as stop:
            self.value = stop.value
        except OSError as error:
            self.error = psycopg.OperationalError(f"the socket is closed: {error}")
        except Exception as error:  # noqa: BLE001 - raised in the waiting task
            self.error = error
        else:
            return
        self.waits = False
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def stop(self) -> None:
        """Watch the socket no more."""
        self._watch.disarm(self._descriptor, self.advance)

    def wait(self) -> asyncio.Future[None]:
        """Return what is done once the exchange has ended."""
        self._wake = asyncio.get_running_loop().create_future()
        return self._wake


class FastConnection(LibpqConnection):
    """A connection on which only statements of the verbs run, one at a time."""

    frame: tuple[()] | tuple[bytes, bytes] = ()
    """What goes before and after statements outside a transaction, where the session's isolation is not ours to set."""

    async def ask(self, text: bytes, parameters: Mapping[str, object]) -> list[Any]:
        """Run a statement and return its rows."""
        if self.frame:
            return (await self.ask_all([(text, parameters)], ()))[0]
        asked = self._prepare(fill(self, text, parameters))
        if asked.key is not None:
            return (await self._rows_together([asked]))[0]
        asked.filled.send(self.pgconn, asked.name)
        results = await self._answers(_exchange(self.pgconn, in_pipeline=False))
        return asked.filled.rows(_checked(results[-1]))

    async def ask_all(self, queries: Sequence[Query], frame: tuple[()] | tuple[bytes, bytes]) -> list[list[Any]]:
        """Run statements in one round trip and return the rows of each.

        `frame` begins and ends a transaction around them. After a statement that fails the server skips all later ones,
        the end of the transaction too, so that the session may be left inside the transaction.
        """
        if self.frame and self.pgconn.transaction_status == TransactionStatus.IDLE:
            frame = self.frame
        framed = [(frame[0], _NOTHING), *queries, (frame[1], _NOTHING)] if frame else queries
        answers = await self._rows_together([self._prepare(fill(self, *query)) for query in framed])
        return answers[1:-1] if frame else answers


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
