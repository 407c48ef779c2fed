"""Targets: the stores under torture, each created by the run, read through the driver alone, and dropped by the run."""

from __future__ import annotations

from urllib.parse import urlsplit

from holdfast.errors import ConfigError, Unsupported
from holdfast.torture.target.base import Target
from holdfast.torture.target.sqlite import SqliteTarget

_EXAMPLES = (
    "sqlite:///scratch.db, postgresql://user@localhost:5432/scratch, mysql://user@localhost:3306/scratch or "
    "redis://localhost:6379/0"
)


def target_of(url: str) -> Target:
    """Return the target at a URL.

    Raises `ConfigError` for what is no URL, and `Unsupported` for a store that torture does not know.
    """
    try:
        scheme = urlsplit(url).scheme
    except ValueError as error:  # the text is not shown: it may hold a password
        raise ConfigError(f"the URL of the store cannot be read ({error}): it must look like {_EXAMPLES}") from None
    if "://" not in url:
        shown = "this" if "@" in url else repr(url)
        raise ConfigError(f"{shown} is not the URL of a store: it must look like {_EXAMPLES}")
    match scheme:
        case "sqlite":
            return SqliteTarget(url)
        case "postgres" | "postgresql":
            from holdfast.torture.target.postgres import PostgresTarget

            return PostgresTarget(url)
        case "mysql" | "mariadb":
            from holdfast.torture.target.mysql import MysqlTarget

            return MysqlTarget(url)
        case "redis" | "rediss" | "valkey" | "valkeys":
            from holdfast.torture.target.redis import RedisTarget

            return RedisTarget(url)
        case _:
            raise Unsupported(f"torture knows sqlite://, postgresql://, mysql:// and redis://, not {scheme}://")


__all__ = ["Target", "target_of"]
