"""Parse a store URL: the server, the name of the store on it, and how to connect.

`redis://user:password@host:port/database`, `valkey://…`, `rediss://…` (TLS), `unix:///path/to/socket?db=0`, with these
settings after `?`:

- `name=holdfast` names the store: all its keys begin with `{holdfast:NAME}:`, so they are in one hash slot;
- `install=auto|never`: whether opening may install the store on a server that has none of this name;
- `pool=32` limits the connections of one event loop;
- `reply_timeout=30`: the seconds after which a connection without a reply counts as broken;
- `completed_bytes=1000000000`: of completed jobs, the newest so many bytes of records are kept, whatever their age;
- `ca=<file>`: the certificates that sign the server's, for `rediss`.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

import msgspec

from holdfast.errors import ConfigError
from holdfast.store.url_settings import POSITIVE_SECONDS, Setting, read_settings

SCHEMES = ("redis", "rediss", "valkey", "valkeys", "unix")
_EXAMPLE = "redis://localhost:6379/0?name=holdfast"
_SETTINGS = {
    "name": Setting("<name>", "[A-Za-z0-9_.-]{1,64}"),
    "install": Setting("auto|never", "auto|never"),
    "pool": Setting("<connections>", "0*[1-9][0-9]{0,5}", int),
    "reply_timeout": POSITIVE_SECONDS,
    "completed_bytes": Setting("<bytes>", "[0-9]{1,15}", int),
    "db": Setting("<number>", "[0-9]{1,5}", int),
    "ca": Setting("<file>", ".+"),
}
_ENCODE = (
    "this is not a Redis URL: percent-encode the user name and the password: @ is %40, / is %2F, : is %3A, # is %23; "
    f"it must look like {_EXAMPLE}"
)


class RedisLocation(msgspec.Struct, frozen=True):
    """Which server and store, and how to connect. `full_url` has the password: for child processes, never shown."""

    url: str
    full_url: str
    host: str = "localhost"
    port: int = 6379
    path: str | None = None
    db: int = 0
    username: str | None = None
    password: str | None = None
    tls: bool = False
    ca: str | None = None
    name: str = "holdfast"
    install: str = "auto"
    pool: int = 32
    reply_timeout: float = 30.0
    completed_bytes: int | None = None

    def __repr__(self) -> str:
        """Show the URL without the password."""
        return f"<RedisLocation {self.url}>"

    @property
    def prefix(self) -> str:
        """What every key of the store begins with; the braces make it one hash slot."""
        return f"{{holdfast:{self.name}}}:"

    @classmethod
    def parse(cls, url: str) -> RedisLocation:
        """Parse a URL; raise `ConfigError` if it is invalid. The error never contains any part of a password."""
        try:
            parts = urlsplit(url)
            port = parts.port or 6379
        except ValueError:
            raise ConfigError(_ENCODE) from None
        if parts.scheme not in SCHEMES or "#" in url or _is_suspect(parts):
            raise ConfigError(_ENCODE)
        shown = _shown(parts)
        settings: dict[str, Any] = read_settings(parse_qsl(parts.query, keep_blank_values=True), _SETTINGS, shown)
        if parts.scheme == "unix":
            if not parts.path.strip("/"):
                raise ConfigError(f"{shown} names no socket: it must look like unix:///run/redis.sock?db=0")
            settings["path"] = unquote(parts.path)
        else:
            settings |= {"host": parts.hostname or "localhost", "port": port, "db": _database(parts, settings, shown)}
        return cls(
            url=shown,
            full_url=url,
            username=None if not parts.username else unquote(parts.username),
            password=None if not parts.password else unquote(parts.password),
            tls=parts.scheme in {"rediss", "valkeys"},
            **settings,
        )


def _database(parts: SplitResult, settings: dict[str, Any], shown: str) -> int:
    number = parts.path.strip("/")
    if not number:
        return int(settings.get("db", 0))
    if not re.fullmatch("[0-9]{1,5}", number) or settings.get("db", int(number)) != int(number):
        raise ConfigError(f"{shown}: the path is the number of a database, as in {_EXAMPLE}")
    return int(number)


def _is_suspect(parts: SplitResult) -> bool:
    """Return whether the URL may have been split inside a password that is not percent-encoded."""
    user = parts.netloc.rpartition("@")[0]
    return "@" in user or "@" in parts.path or "@" in parts.query


def _shown(parts: SplitResult) -> str:
    user, at, host = parts.netloc.rpartition("@")
    query = urlencode(parse_qsl(parts.query, keep_blank_values=True), quote_via=quote)
    netloc = f"{user.partition(':')[0]}{at}{host}"
    return f"{parts.scheme}://{netloc}{parts.path}" + (f"?{query}" if query else "")
