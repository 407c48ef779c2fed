"""Connections that can be talked to past the driver's cursors: statements go straight to libpq.

A cursor finds out anew, each time, what can be known of a statement beforehand, and sends one statement at a time.
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
_TIMEOUT = 5.0  # with a server that was asked to cancel a statement
Send = Callable[[PGconn], None]
Exchange = Generator[Wait, Ready | None, list[PGresult]]


class Filled(NamedTuple):
    """A statement with its parameters."""

    query: bytes
    values: Sequence[Buffer | None]
    transformer: Adaptation

    def send(self, session: PGconn) -> None:
        """Send it to be parsed, planned and run."""
        adapted = self.transformer
        session.send_query_params(
            self.query,
            self.values,
            param_types=adapted.types,
            param_formats=adapted.formats,
            result_format=Format.BINARY,
        )

    def rows(self, result: PGresult) -> list[Any]:
        """Return the rows of its answer."""
        if result.status != ExecStatus.TUPLES_OK:
            return [()] * (result.command_tuples or 0)
        self.transformer.set_pgresult(result)
        return self.transformer.load_rows(0, result.ntuples, tuple)


def fill(connection: AsyncConnection[Any], text: bytes, parameters: Mapping[str, object]) -> Filled:
    """Put parameters, adapted by the driver, in the places of a statement."""
    query, names, formats = _numbered(text)
    transformer = Transformer(connection)
    return Filled(query, transformer.dump_sequence([parameters[name] for name in names], formats), transformer)


class LibpqConnection(AsyncConnection[Any]):
    """A connection with a short way to the server."""

    async def _answer(self) -> PGresult:
        """Wait for the answer to the one statement that was sent; raises what the server says of it or its commit."""
        results = await self._answers(_exchange(self.pgconn, in_pipeline=False))
        return _checked(results[-1])

    async def _answers_together(self, send: Sequence[Send]) -> list[PGresult]:
        """Send statements in one round trip and return all answers.

        Raises what the server says of the first that fails: it takes all that follow with it, but none before it.
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
        except psycopg.OperationalError:  # something that was sent is still to be answered, and nobody waits for it
            self.pgconn.finish()

    async def _answers(self, exchange: Exchange) -> list[PGresult]:
        """Wait for the answers to what was sent.

        What is cancelled here is cancelled there, and the session can be used again. Who is cancelled a second time
        meanwhile does not wait for that, and the session is closed.
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
        loop.add_reader(descriptor, reader.settle, Ready.R)  # once: a long answer comes in many pieces
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
    """Waits again and again for the same socket."""

    __slots__ = ("_future", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._future: asyncio.Future[Ready] | None = None

    def next(self) -> asyncio.Future[Ready]:
        """Return what becomes ready next; the socket is still so, should it have been before."""
        self._future = self._loop.create_future()
        return self._future

    def settle(self, how: Ready) -> None:
        """Take note that the socket is ready."""
        if self._future is not None and not self._future.done():
            self._future.set_result(how)


def _exchange(session: PGconn, *, in_pipeline: bool) -> Exchange:
    """Send what is still to be sent and take in all that is answered, never blocking.

    Returns the results up to the first that failed: one for each statement, and one more if what failed is the commit
    that the server does by itself. Before it is ready for the next statement nothing is known to be committed, so a
    server that hangs up earlier, and does not say why, raises `OperationalError`.
    """
    results: list[PGresult] = []
    try:
        yield from _send(session)
        yield from _take_in(session, results, in_pipeline=in_pipeline)
    except psycopg.OperationalError:
        if not _has_failed(results):  # else the server has said why before it closed the connection
            raise
    return results


def _take_in(session: PGconn, results: list[PGresult], *, in_pipeline: bool) -> Generator[Wait, Ready | None, None]:
    was_none = False
    while True:
        result = yield from _next_result(session)
        if result is None and (was_none or not in_pipeline):
            # In a pipeline one stands behind each answer: behind none, nobody is there any more.
            if in_pipeline or not results or session.status != ConnStatus.OK:
                message = "the server closed the connection in the middle of its answers"
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
        ready = yield Wait.RW  # None: the wait was cancelled, and somebody waits anew
        if ready is None or ready & Ready.R:
            session.consume_input()


def _next_result(session: PGconn) -> Generator[Wait, Ready | None, PGresult | None]:
    while session.is_busy():
        yield Wait.R
        session.consume_input()
    return session.get_result()


def _checked(result: PGresult) -> PGresult:
    """Return a result; raises what the server says."""
    if result.status == ExecStatus.FATAL_ERROR:
        raise psycopg.errors.error_from_result(result)
    return result


@lru_cache(maxsize=1000)
def _numbered(text: bytes) -> tuple[bytes, list[str], list[PyFormat]]:
    """Return a statement with numbers in the places of names, and the names in the order of their numbers."""
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
