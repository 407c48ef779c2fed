"""Connections that run only our own statements, and the fast path for them.

The driver's cursor works out at every run what is constant for a statement: the positions of its parameters, whether
it is prepared, the columns of its result. For an enqueue or a claim of one job that is most of the client's time. So
here a statement goes straight to libpq, with the driver's adaptation of values: a single insert takes 106 µs of CPU
time instead of 146.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.backends.postgres.wire import Filled, LibpqConnection, fill

_MOST = 200  # prepared statements of one session; a statement counts once for each combination of parameter types


class FastConnection(LibpqConnection):
    """A connection on which only statements of the verbs run, one at a time."""

    prepared: dict[tuple[bytes, tuple[int, ...]], bytes] | None = None
    """The names of prepared statements; None where a pooler may be in front of the server."""

    _named = 0

    async def ask(self, text: bytes, parameters: Mapping[str, object]) -> list[Any] | None:
        """Run a statement and return its rows; None, with nothing done, if it must go through a cursor."""
        named = await self._named_statement(text, parameters)
        if named is None:
            return None
        filled, name = named
        filled.send(self.pgconn, name)
        return filled.rows(await self._answer())

    async def ask_all(
        self, queries: Sequence[tuple[bytes, Mapping[str, object]]], frame: tuple[()] | tuple[bytes, bytes]
    ) -> list[list[Any]] | None:
        """Run statements in one round trip and return the rows of each; None, with nothing done, as for `ask`.

        `frame` begins and ends a transaction around them. After a statement that fails the server skips all later ones,
        the end of the transaction too, so that the session may be left inside the transaction.
        """
        asked: list[tuple[Filled, bytes]] = []
        nothing: Mapping[str, object] = {}
        for text, parameters in [(frame[0], nothing), *queries, (frame[1], nothing)] if frame else queries:
            named = await self._named_statement(text, parameters)
            if named is None:
                return None
            asked.append(named)
        answers = await self._rows_together(asked)
        return answers[1:-1] if frame else answers

    async def _named_statement(self, text: bytes, parameters: Mapping[str, object]) -> tuple[Filled, bytes] | None:
        """Return a statement with the name under which it is prepared."""
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
        return filled, name
