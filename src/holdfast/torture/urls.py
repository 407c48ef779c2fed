"""URLs of stores, and what their drivers take."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit

from holdfast.errors import ConfigError

_OURS = {"schema", "install", "pool", "prepare", "reply_timeout"}
_LAST_PORT = 65535


def postgres_url(url: str) -> str:
    """Return a URL for the driver: without Holdfast's own settings."""
    parts = urlsplit(url)
    libpq = [(name, value) for name, value in parse_qsl(parts.query) if name not in _OURS]
    return joined(parts._replace(scheme="postgresql"), libpq)


def require_port(driver_url: str, shown: str) -> None:
    """Raise `ConfigError` if a URL names a port that cannot be."""
    from psycopg.conninfo import conninfo_to_dict

    ports = str(conninfo_to_dict(driver_url).get("port") or "")
    if not all(port.isdecimal() and 0 < int(port) <= _LAST_PORT for port in ports.split(",") if port):
        raise ConfigError(f"{shown}: the port {ports!r} cannot be: give a number such as 5432, or none")


def with_settings(url: str, **settings: str) -> str:
    """Return a URL with settings added or replaced."""
    parts = urlsplit(url)
    return joined(parts, {**dict(parse_qsl(parts.query)), **settings}.items())


def through(url: str, port: int) -> str:
    """Return a URL by way of a port of this machine."""
    parts = urlsplit(url)
    user, at, _ = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user}{at}127.0.0.1:{port}").geturl()


def joined(parts: SplitResult, query: Iterable[tuple[str, str]]) -> str:
    """Assemble a URL; `urlunsplit` would drop the slashes if no host is named, as for the local socket."""
    settings = urlencode(list(query), quote_via=quote)
    return f"{parts.scheme}://{parts.netloc}{parts.path}" + (f"?{settings}" if settings else "")
