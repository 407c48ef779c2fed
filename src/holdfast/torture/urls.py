"""URLs of stores, and what their drivers take."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from holdfast.errors import ConfigError, Unsupported

_OURS = {"schema", "install", "pool", "prepare", "patience"}
_EXAMPLES = "sqlite:///scratch.db or postgresql://user@localhost:5432/scratch"


def store_of(url: str) -> str:
    """Return the kind of store of a URL, sqlite or postgresql.

    Raises `ConfigError` for an invalid URL, and `Unsupported` for a store that torture does not support.
    """
    try:
        scheme = urlsplit(url).scheme
    except ValueError as error:  # the text is not shown: it may contain a password
        raise ConfigError(f"invalid store URL ({error}): it must look like {_EXAMPLES}") from None
    if "://" not in url:
        shown = "this" if "@" in url else repr(url)
        raise ConfigError(f"{shown} is not a store URL: it must look like {_EXAMPLES}")
    if scheme not in {"sqlite", "postgres", "postgresql"}:
        raise Unsupported(f"torture supports sqlite:// and postgresql://, not {scheme}://")
    return "sqlite" if scheme == "sqlite" else "postgresql"


def sqlite_path(url: str) -> str:
    """Return the file of a SQLite URL."""
    return unquote(urlsplit(url).path.removeprefix("/"))


def postgres_url(url: str) -> str:
    """Return a URL for the driver: without Holdfast's own settings."""
    parts = urlsplit(url)
    libpq = [(name, value) for name, value in parse_qsl(parts.query) if name not in _OURS]
    return joined(parts._replace(scheme="postgresql"), libpq)


def with_settings(url: str, **settings: str) -> str:
    """Return a URL with settings added or replaced."""
    parts = urlsplit(url)
    return joined(parts, {**dict(parse_qsl(parts.query)), **settings}.items())


def joined(parts: SplitResult, query: Iterable[tuple[str, str]]) -> str:
    """Assemble a URL; `urlunsplit` would drop the slashes if no host is named, as for the local socket."""
    settings = urlencode(list(query), quote_via=quote)
    return f"{parts.scheme}://{parts.netloc}{parts.path}" + (f"?{settings}" if settings else "")
