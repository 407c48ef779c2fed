"""Connections that run only our own statements, and the fast path for them.

The driver's cursor works out at every run what is constant for a statement: the positions of its parameters, whether
it is prepared, the columns of its result. For an enqueue or a claim of one job that is most of the client's time. So
here a statement goes straight to libpq, with the driver's adaptation of values: a single insert takes 106 µs of CPU
time instead of 146.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from psycopg.pq import Format
from psycopg.pq.abc import PGconn

from holdfast.backends.postgres.wire import Filled, LibpqConnection, fill

_MOST = 200  # prepared statements of one session; a statement counts once for each combination of parameter types


class FastConnection(LibpqConnection):
    """A connection on which only statements of the verbs run, one at a time."""

    prepared: dict[tuple[bytes, tuple[int, ...]], bytes] | None = None
    """The names of prepared statements; None where a pooler may be in front of the server."""

    _named = 0

    async def ask(self, text: bytes, parameters: Mapping[str, object]) -> list[Any] | None:
        """Run a statement and return its rows; None, with nothing done, if it must go through a cursor."""
        ready = await self._made_ready(text, parameters)
        if ready is None:
            return None
        ready.send(self.pgconn)
        return ready.filled.rows(await self._answer())

    async def ask_all(
        self, queries: Sequence[tuple[bytes, Mapping[str, object]]], frame: tuple[()] | tuple[bytes, bytes]
    ) -> list[list[Any]] | None:
        """Run statements in one round trip and return the rows of each; None, with nothing done, as for `ask`.

        `frame` begins and ends a transaction around them. After a statement that fails the server skips all later ones,
        the end of the transaction too, so that the session may be left inside the transaction.
        """
        asked: list[_Ready] = []
        nothing: Mapping[str, object] = {}
        for text, parameters in [(frame[0], nothing), *queries, (frame[1], nothing)] if frame else queries:
            ready = await self._made_ready(text, parameters)
            if ready is None:
                return None
            asked.append(ready)
        results = await self._answers_together([ready.send for ready in asked])
        answers = [ready.filled.rows(result) for ready, result in zip(asked, results, strict=True)]
        return answers[1:-1] if frame else answers

    async def _made_ready(self, text: bytes, parameters: Mapping[str, object]) -> _Ready | None:
        prepared = self.prepared
        if prepared is None:
            return None
        filled = fill(self, text, parameters)
        key = (filled.query, filled.transformer.types or ())
        name = prepared.get(key)
        if name is None:
            if len(prepared) >= _MOST:
                return None
            # Never reuse a name: the server may have prepared a statement whose sender was cancelled meanwhile.
            name = b"holdfast_%d" % self._named
            self._named += 1
            self.pgconn.send_prepare(name, filled.query, param_types=key[1])
            await self._answer()
            prepared[key] = name
        return _Ready(name, filled)


class _Ready(NamedTuple):
    """A prepared statement with its parameters."""

    name: bytes
    filled: Filled

    def send(self, session: PGconn) -> None:
        """Send the statement."""
        formats = self.filled.transformer.formats
        session.send_query_prepared(self.name, self.filled.values, param_formats=formats, result_format=Format.BINARY)
