"""From the URL of a store to what its driver takes."""

from __future__ import annotations

from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

_OURS = {"schema", "install", "pool", "prepare", "patience"}


def sqlite_path(url: str) -> str:
    """Return the file of a SQLite URL."""
    return unquote(urlsplit(url).path.removeprefix("/"))


def postgres_url(url: str) -> str:
    """Return a URL as the driver reads it: without our own settings."""
    parts = urlsplit(url)
    libpq = [(name, value) for name, value in parse_qsl(parts.query) if name not in _OURS]
    return urlunsplit(parts._replace(scheme="postgresql", query=urlencode(libpq, quote_via=quote)))


def with_settings(url: str, **settings: str) -> str:
    """Return a URL with more settings, or others."""
    parts = urlsplit(url)
    query = {**dict(parse_qsl(parts.query)), **settings}
    return urlunsplit(parts._replace(query=urlencode(query, quote_via=quote)))
