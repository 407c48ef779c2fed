"""A schema of a PostgreSQL database as the ground of a run of streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from holdfast.torture.history import now_us
from holdfast.torture.streams.records import EventRow, ParkedRow, ShareRow, SharesSeen, StreamEffectRow, TransitionSeen
from holdfast.torture.streams.target import DUMPS, counted, shares_seen, transition
from holdfast.torture.target.base import Leftovers
from holdfast.torture.target.postgres import PostgresGround

_TABLE = "stream_effect"
_PAGE = 20_000


class PostgresStreamGround(PostgresGround):
    """`StreamGround` over a schema."""

    def prepare(self) -> None:
        """Make the table of effects, too."""
        super().prepare()
        with self._open() as connection:
            for step in ("drop", "create", "index"):
                connection.execute(self._trusted(f"{step}_{_TABLE}"))

    def _trusted(self, name: str, **values: int) -> Any:
        """Return a statement made of our own names alone."""
        return self._say.with_names(name, **values)

    def _all(self, *names: str, **values: int) -> list[list[tuple[Any, ...]]]:
        with self._open(autocommit=False) as connection:
            connection.execute(self._trusted("frozen"))
            return [connection.execute(self._trusted(name, **values)).fetchall() for name in names]

    def counts(self) -> Mapping[str, int]:
        """Count events."""
        return counted(*self._all("partitions_done", "count_parked", "count_shares", "count_owned"))

    def effects_seen(self, after: int) -> tuple[int, int]:
        """Look at the latest effects."""
        last, doubled = self._all("last_stream_effect", "doubled_stream_effects", after=after)
        return last[0][0], doubled[0][0]

    def shares(self) -> SharesSeen:
        """Look at all shares."""
        return shares_seen(now_us(), *self._all("shares_seen", "epoch_seen"))

    def transitions(self, after: int) -> list[TransitionSeen]:
        """Return the latest steps."""
        (rows,) = self._all("transitions_seen", after=after)
        return [transition(row) for row in rows]

    def dumped(self) -> Iterator[EventRow | StreamEffectRow | ParkedRow | ShareRow]:
        """Dump everything."""
        with self._open(autocommit=False) as connection:
            connection.execute(self._trusted("frozen"))
            for name, make in DUMPS.items():
                with connection.cursor(name) as rows:
                    rows.itersize = _PAGE
                    rows.execute(self._trusted(name))
                    yield from map(make, rows)

    def leftovers(self) -> Leftovers:
        """Look for shares that are still owned, too."""
        (owned,) = self._all("count_owned")
        return msgspec.structs.replace(super().leftovers(), leases=owned[0][0])
