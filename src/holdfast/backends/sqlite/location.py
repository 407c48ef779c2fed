"""Parses the URL of a SQLite store.

`sqlite:///relative.db` (to the current directory), `sqlite:////absolute.db`, `sqlite://` (in memory), with these
settings after `?`: `synchronous=full|normal` and `busy_timeout=<seconds>`.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import msgspec

from holdfast.errors import ConfigError
from holdfast.store.url_settings import SECONDS, Setting, read_settings

_EXAMPLES = (
    "sqlite:///jobs.db (in the current directory), sqlite:////var/lib/app/jobs.db (absolute), sqlite:// (in memory)"
)

_SETTINGS = {"synchronous": Setting("full|normal", "full|normal"), "busy_timeout": SECONDS}


class SqliteLocation(msgspec.Struct, frozen=True):
    """The path of the database and its settings; with `path` None it is in memory."""

    path: Path | None
    synchronous: str = "full"
    busy_timeout: float = 10.0

    @property
    def url(self) -> str:
        """The URL of this location."""
        if self.path is None:
            return "sqlite://"
        return f"sqlite:///{self.path}"

    @property
    def full_url(self) -> str | None:
        """The URL for another process, in any working directory, with the settings; None in memory."""
        if self.path is None:
            return None
        # Quote only ASCII: a file name that is not valid text must keep its surrogate escapes.
        path = "".join(quote(letter) if letter.isascii() else letter for letter in str(self.path))
        return f"sqlite:///{path}?synchronous={self.synchronous}&busy_timeout={self.busy_timeout:f}"

    @classmethod
    def parse(cls, url: str) -> SqliteLocation:
        """Parse a URL; raise `ConfigError`, with examples, if it is not valid."""
        parts = urlsplit(url)
        if parts.scheme != "sqlite" or parts.netloc or parts.fragment:
            shown = "this" if "@" in parts.netloc else repr(url)  # a password is not repeated
            message = f"{shown} is not a SQLite URL: it must look like {_EXAMPLES}"
            raise ConfigError(message)
        name = unquote(parts.path.removeprefix("/"))
        if "\0" in name:
            message = f"{url!r} contains a NUL character"
            raise ConfigError(message)
        if parts.path == "/":  # a file was meant; an in-memory store would be lost with this process
            message = (
                f"{url!r} names no file (is a variable empty?): it must look like {_EXAMPLES}; a store in memory is "
                "lost with its process"
            )
            raise ConfigError(message)
        path = None if name in {"", ":memory:"} else Path(name).absolute()
        given = parse_qsl(parts.query, keep_blank_values=True)
        return cls(path=path, **read_settings(given, _SETTINGS, repr(url)))
