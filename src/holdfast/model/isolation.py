"""The isolation of a handler's transaction, and how often an attempt is repeated because its transaction conflicted.

The level is Holdfast's to set, whatever the default of the database: under a stricter default the statements that lock
a job and complete it would conflict with those of other jobs. A handler that needs more for its own statements asks for
it. A store that always isolates fully, such as SQLite, accepts every level.
"""

from __future__ import annotations

from typing import Final, Literal, cast, get_args

from holdfast.errors import ConfigError

Isolation = Literal["read committed", "repeatable read", "serializable"]
"""The isolation level of a transaction, in the words of SQL."""

READ_COMMITTED: Final = "read committed"

MAX_CONFLICTS: Final = 25
"""How often an attempt is repeated because of conflicts; the next conflict is a failed attempt like any other."""

_FIRST_PAUSE: Final = 0.01
_LONGEST_PAUSE: Final = 1.0


def check_isolation(isolation: object) -> Isolation:
    """Return a valid isolation level or raise `ConfigError`."""
    if not isinstance(isolation, str) or isolation not in get_args(Isolation):
        levels = ", ".join(map(repr, get_args(Isolation)))
        raise ConfigError(f"isolation={isolation!r} is not one of {levels}")
    return cast("Isolation", isolation)


def pause_after_conflict(conflicts: int, draw: float) -> float:
    """Return the seconds to wait before the next repeat; `conflicts` counts from 1, `draw` is random in [0, 1).

    The pause grows, and differs between those that conflicted: together they would conflict again.
    """
    return min(_LONGEST_PAUSE, _FIRST_PAUSE * float(2 ** min(conflicts, 10))) * draw
