"""What lies in a schema of a PostgreSQL database, and how a run takes away its own part of it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import msgspec
import psycopg
from psycopg import Connection

from holdfast.errors import ConfigError
from holdfast.torture.target.base import CLEARING, FOREIGN, INSTALLED, MADE, TABLES
from holdfast.torture.target.statements import TargetStatements, listed

_OURS = frozenset({*INSTALLED, "tally", "minute_count"})
_SEQUENCES = ("fence", "job_seq")
_META = 2
"""How many columns tell Holdfast's table `meta` from another of this name."""


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """What a schema holds; `foreign` counts what is not of runs."""

    exists: bool
    tables: frozenset[str]
    """Those of Holdfast and of runs."""
    foreign: int

    @property
    def is_made_by_a_run(self) -> bool:
        """Whether there was no such schema before a run made it."""
        return MADE in self.tables


def run(connection: Connection[Any], statement: str) -> Any:
    """Run a statement that is made of our own names alone; the schema's was checked when the URL was read."""
    trusted: Any = statement
    return connection.execute(trusted)


def number(connection: Connection[Any], statement: str) -> int:
    """Return the one number that a statement selects."""
    return int(run(connection, statement).fetchone()[0])


def look(connection: Connection[Any], say: TargetStatements) -> Contents:
    """Look at a schema. Where Holdfast is not installed, a table is somebody else's whatever its name."""
    is_installed = number(connection, say["has_meta"]) == _META
    ours: frozenset[str] = _OURS if is_installed else frozenset()
    tables = ours & {row[0] for row in run(connection, say["tables"]).fetchall()}
    known = listed(sorted({*ours, *_SEQUENCES})) if is_installed else "''"
    strangers = number(connection, say.with_names("count_strangers", known=known))
    rows = sum(number(connection, say[name]) for table, name in FOREIGN.items() if table in tables)
    return Contents(
        exists=number(connection, say["has_schema"]) > 0,
        tables=tables,
        foreign=strangers + rows,
    )


def drop_whole(connection: Connection[Any], say: TargetStatements, tables: frozenset[str]) -> None:
    """Drop a schema that holds nothing but these tables; raises `ConfigError` if anything else stands on them."""
    with _nothing_else_dropped():
        run(connection, say.with_names("drop_tables", tables=", ".join(f"{say.at}{name}" for name in sorted(tables))))
        run(connection, say["drop_sequences"])
        run(connection, say["drop_schema"])


def clear(connection: Connection[Any], say: TargetStatements, tables: frozenset[str]) -> None:
    """Remove the rows and the tables of runs; raises `ConfigError` if anything else stands on these."""
    with _nothing_else_dropped():
        for table, statement in CLEARING:
            if table in tables:
                run(connection, say.with_names(statement, table=table))
        for name in TABLES:
            if f"torture_{name}" in tables:
                run(connection, say[f"drop_{name}"])


@contextmanager
def _nothing_else_dropped() -> Generator[None]:
    """Name what others have made elsewhere on top of our tables, and leave it alone."""
    try:
        yield
    except psycopg.errors.DependentObjectsStillExist as error:
        found = "; ".join((error.diag.message_detail or str(error)).splitlines())
        raise ConfigError(
            f"what runs have left cannot be removed, for other things stand on it ({found}): "
            "drop those, or name another schema"
        ) from error
