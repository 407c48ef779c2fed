"""Statements on a MySQL or MariaDB server past any store: those that create and drop databases and tables."""

from __future__ import annotations

from contextlib import closing
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from holdfast.errors import ConfigError, StoreUnavailable

_LOST = {2002, 2003, 2006, 2013}  # no connection, or none any more


def run_alone(url: str, *statements: str) -> None:
    """Run statements on the server of a URL, in no database, each of which commits by itself.

    Raises `StoreUnavailable` or, if a statement is refused, `ConfigError`.
    """
    import pymysql

    parts = urlsplit(url)
    settings = dict(parse_qsl(parts.query))
    place: dict[str, Any] = {"host": parts.hostname or "localhost", "port": parts.port or 3306}
    if "socket" in settings:
        place = {"unix_socket": settings["socket"]}
    if settings.get("tls", "off") == "off":
        place["ssl_disabled"] = True
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    try:
        with closing(pymysql.connect(**place, user=user, password=password)) as connection:
            for statement in statements:
                with connection.cursor() as cursor:
                    cursor.execute(statement)
    except pymysql.MySQLError as error:
        code, reason = (*error.args, "")[:2]
        if code in _LOST:
            raise StoreUnavailable(f"the MySQL server cannot be reached: {reason}") from error
        raise ConfigError(f"the MySQL server refused a statement: {reason}") from error
