"""Parse a store URL: the database, and how to connect.

`mysql://user:password@host:3306/database`, or `mariadb://…`, with these parameters after `?`:

- `socket=/run/mysqld/mysqld.sock`: a Unix socket in place of host and port;
- `tls=on|off|verify`: by default off for a socket and for this machine, else on; `ca=<file>` for `verify`;
- `install=auto|never`: whether opening may install the tables into a database that has none;
- `pool=10` limits the connections that verbs use at once, and separately those that handlers' transactions use;
- `reply_timeout=30`: the seconds after which a connection without a reply counts as broken, at least 3;
- `galera=one-writer`: a promise that all processes of this store write to the same node of the cluster.
"""

from __future__ import annotations

import ssl
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import msgspec

from holdfast.errors import ConfigError
from holdfast.store.url_settings import Setting, read_settings

_EXAMPLE = "mysql://user:password@localhost:3306/database"
_LOCAL = {"", "localhost", "127.0.0.1", "::1"}
_SETTINGS = {
    "socket": Setting("<path>", ".+"),
    "tls": Setting("on|off|verify", "on|off|verify"),
    "ca": Setting("<file>", ".+"),
    "install": Setting("auto|never", "auto|never"),
    "pool": Setting("<connections>", "0*[1-9][0-9]{0,9}", int),
    # The shortest wait for a lock, a second, may take two.
    "reply_timeout": Setting("<seconds, at least 3>", r"0*([3-9]|[1-9][0-9]{1,5})(\.[0-9]{0,6})?", float),
    "galera": Setting("one-writer", "one-writer"),
}


class MysqlLocation(msgspec.Struct, frozen=True):
    """Which database, and how to connect."""

    url: str
    host: str
    port: int
    user: str
    password: str
    database: str
    socket: str | None = None
    tls: str | None = None
    ca: str | None = None
    install: str = "auto"
    pool: int = 10
    reply_timeout: float = 30.0
    galera: str | None = None
    full_url: str = ""
    """The URL as given, with the password: for child processes, never for display."""

    def __repr__(self) -> str:
        """Show the URL without the password."""
        return f"<MysqlLocation {self.url}>"

    @classmethod
    def parse(cls, url: str) -> MysqlLocation:
        """Parse a URL; raise `ConfigError` if it is invalid. The error never contains any part of a password."""
        try:
            parts = urlsplit(url)
            host, port, user, password = parts.hostname or "", parts.port or 3306, parts.username, parts.password
        except ValueError:
            raise ConfigError(_not_a_url()) from None
        database = unquote(parts.path.removeprefix("/"))
        if "#" in url or "@" in parts.path or "@" in parts.query or parts.netloc.count("@") > 1:
            raise ConfigError(_not_a_url("percent-encode everything but letters and digits in user and password"))
        if not database or "/" in database:
            raise ConfigError(_not_a_url("it names no database"))
        given = parse_qsl(parts.query, keep_blank_values=True)
        shown_user = "" if user is None else f"{quote(unquote(user))}@"
        place = host if parts.port is None else f"{host}:{port}"
        query = f"?{urlencode(given, quote_via=quote, safe='/')}" if given else ""
        where = f"{parts.scheme}://{shown_user}{place}/{quote(database)}{query}"
        return cls(
            url=where,
            host=host or "localhost",
            port=port,
            user=unquote(user or ""),
            password=unquote(password or ""),
            database=database,
            full_url=url,
            **read_settings(given, _SETTINGS, where),
        )

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of a connection that both drivers take."""
        given: dict[str, Any] = {"user": self.user, "password": self.password, "database": self.database}
        if self.socket is not None:
            return {**given, "unix_socket": self.socket}
        return {**given, "host": self.host, "port": self.port}

    def lock_wait(self, most: int = 10) -> int:
        """The seconds that a statement may wait for a lock: it fails before the connection counts as broken."""
        return min(most, int(self.reply_timeout * 2 / 3))

    @property
    def encryption(self) -> ssl.SSLContext | None:
        """The TLS context, or None for a connection without it."""
        tls = self.tls or ("off" if self.socket is not None or self.host in _LOCAL else "on")
        if tls == "off":
            return None
        context = ssl.create_default_context(cafile=self.ca)
        if tls == "on":  # against listeners only; `verify` also against another server in the middle
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def _not_a_url(reason: str = "") -> str:
    return f"this is not a MySQL URL{f' ({reason})' if reason else ''}: it must look like {_EXAMPLE}"
