"""Parse a store URL: the database, the schema in it, and how to connect.

`postgresql://user:password@host:port/database`, with the parameters of libpq after `?` and these of Holdfast:

- `schema=holdfast` names the schema that holds the tables;
- `install=auto|never`: whether opening may install them into a database that has none;
- `pool=10` limits the connections that verbs use at once, and separately those that handlers' transactions use;
- `reply_timeout=30`: the seconds after which a connection without a reply counts as broken;
- `prepare=auto|never|always`: prepared statements are session state, which a transaction pooler does not keep. `auto`
  prepares only on a direct connection to the server (see `connecting.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

import msgspec
from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo

from holdfast.errors import ConfigError
from holdfast.store.url_settings import POSITIVE_SECONDS, Setting, read_settings

DEFAULT_SCHEMA = "holdfast"
_EXAMPLE = "postgresql://user@localhost:5432/database?schema=holdfast"
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,47}")
_HIDDEN = {"password", "sslpassword", "passfile"}
_NOT_ENCODED = re.compile(r"[\s@]|%(?![0-9a-fA-F]{2})|%00")
_ENCODE = (
    "this is not a PostgreSQL URL: percent-encode the user name and the password: @ is %40, / is %2F, : is %3A, # is "
    f"%23, ? is %3F, % is %25 (Python: urllib.parse.quote(password, safe='')); it must look like {_EXAMPLE}"
)

# A dead link is detected within seconds, idle or during a request; a stopped server at once.
_CONNECT_DEFAULTS = {
    "connect_timeout": "5",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
    "target_session_attrs": "read-write",
    "application_name": "holdfast",
}


def quoted(schema: str) -> str:
    """Return a schema's name quoted for statements; raise `ConfigError` unless it is a plain name."""
    if not _SCHEMA.fullmatch(schema) or schema.startswith("pg_"):
        message = (
            f"invalid schema={schema!r}: use lower-case letters, digits and underscores, at most 48 characters, and do "
            "not begin with a digit or with pg_"
        )
        raise ConfigError(message)
    return f'"{schema}"'


_SETTINGS = {
    "schema": Setting("<name>", ".*"),
    "install": Setting("auto|never", "auto|never"),
    "pool": Setting("<connections>", "0*[1-9][0-9]{0,9}", int),
    "reply_timeout": POSITIVE_SECONDS,
    "prepare": Setting("auto|never|always", "auto|never|always"),
}


class PostgresLocation(msgspec.Struct, frozen=True):
    """Which database and schema, and how to connect."""

    url: str
    conninfo: str
    schema: str = DEFAULT_SCHEMA
    install: str = "auto"
    pool: int = 10
    prepare: str = "auto"
    reply_timeout: float = 30.0
    full_url: str = ""
    """The URL as given, with the password: for child processes, never for display."""

    def __post_init__(self) -> None:
        """Raise `ConfigError` unless the schema has a plain name."""
        quoted(self.schema)

    def __repr__(self) -> str:
        """Show the URL without the password."""
        return f"<PostgresLocation {self.url}>"

    @classmethod
    def parse(cls, url: str) -> PostgresLocation:
        """Parse a URL; raise `ConfigError` if it is invalid. The error never contains any part of a password."""
        try:
            parts = urlsplit(url)
            shown, ours, libpq = _sort(parts.query)
            if "#" in url or _is_suspect(parts):
                raise ConfigError(_ENCODE)
            settings = conninfo_to_dict(_joined(parts.netloc, parts.path, libpq))
            conninfo = make_conninfo("", **{**_CONNECT_DEFAULTS, **settings})
        except (ValueError, ProgrammingError) as error:
            message = f"this is not a PostgreSQL URL{_reason(str(error), url)}: it must look like {_EXAMPLE}"
            raise ConfigError(message) from None
        where = _shown_url(parts.netloc, parts.path, shown)
        return cls(url=where, conninfo=conninfo, full_url=url, **read_settings(ours.items(), _SETTINGS, where))


def _sort(query: str) -> tuple[list[tuple[str, str]], dict[str, str], dict[str, str]]:
    """Split the parameters into those that may be shown, those of Holdfast and those of libpq."""
    shown: list[tuple[str, str]] = []
    ours: dict[str, str] = {}
    libpq: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        (ours if name in _SETTINGS else libpq)[name] = value
        if name not in _HIDDEN:
            shown.append((name, value))
    return shown, ours, libpq


def _shown_url(netloc: str, path: str, query: list[tuple[str, str]]) -> str:
    user, at, host = netloc.rpartition("@")
    return _joined(f"{user.partition(':')[0]}{at}{host}", path, query)


def _joined(netloc: str, path: str, query: Mapping[str, str] | Sequence[tuple[str, str]]) -> str:
    """Build a URL; `urlunsplit` would omit the slashes where no host is given, as for the local socket."""
    return f"postgresql://{netloc}{path}" + (f"?{urlencode(query, quote_via=quote)}" if query else "")


def _is_suspect(parts: SplitResult) -> bool:
    """Return whether the URL may have been split inside a user name or a password that is not percent-encoded.

    Then the supposed host, database or parameter may be a piece of the password, which would appear in errors of the
    driver and in our logs. A piece in the place of the parameters ends with the @ before the host, and would have to
    begin like a parameter of libpq to pass as one.
    """
    user, _, _ = parts.netloc.rpartition("@")
    pieces = [piece for piece in parts.query.split("&") if "@" in piece]
    return (
        _NOT_ENCODED.search(user) is not None
        or "@" in parts.path
        or any(piece.partition("=")[0] not in _known_parameters() for piece in pieces)
    )


def _known_parameters() -> set[str]:
    return {option.keyword.decode() for option in Conninfo.get_defaults()} | _SETTINGS.keys()


def _reason(text: str, url: str) -> str:
    """Return the driver's error about a URL, in parentheses; empty if it may contain a password."""
    text = text.strip()
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    password = parts.netloc.rpartition("@")[0].partition(":")[2]
    secrets = {password, unquote(password)} | {value for name, value in parse_qsl(parts.query) if name in _HIDDEN}
    return "" if "@" in text or any(secret in text for secret in secrets if secret) else f" ({text})"
