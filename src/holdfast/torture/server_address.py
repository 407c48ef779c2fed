"""Where the server of a PostgreSQL URL is, as libpq finds it, and a URL that leads there by another way."""

from __future__ import annotations

import os
from urllib.parse import parse_qsl, urlsplit

import msgspec

from holdfast.errors import StoreUnavailable, Unsupported
from holdfast.torture.urls import joined, postgres_url

_HERE = "127.0.0.1"
_PLACES = ("host", "hostaddr", "port")  # in the query of a URL they take the place of what stands before it
_TIMEOUT = 5  # seconds


class ServerAddress(msgspec.Struct, frozen=True):
    """A server: `host` is the name that a certificate is held against, or the directory of a socket."""

    host: str
    address: str
    port: int

    @property
    def target(self) -> str:
        """What to connect to."""
        return self.address or self.host


def place_of(url: str) -> ServerAddress:
    """Return the place of the server of a URL; raises `Unsupported` where there are several.

    What the URL does not say, libpq takes from the environment, from a service file, or from how it was built: then a
    connection is made, and asked.
    """
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.pq import Conninfo

    given = {name: str(value) for name, value in conninfo_to_dict(postgres_url(url)).items() if value}
    defaults = {
        option.keyword.decode(): option.val.decode() for option in Conninfo.get_defaults() if option.val is not None
    }
    is_said = ("host" in given or "hostaddr" in given) and "service" not in given and "PGSERVICE" not in os.environ
    if "," in given.get("host", "") + given.get("hostaddr", ""):
        raise Unsupported("torture breaks the line to one server: name one host in the URL, not several")
    if not is_said or ("hostaddr" not in given and "hostaddr" in defaults):
        return _asked(url)
    host, address = given.get("host", ""), given.get("hostaddr", "")
    return ServerAddress(host or address, address, int(given.get("port") or defaults.get("port") or 5432))


def _asked(url: str) -> ServerAddress:
    import psycopg

    try:
        with psycopg.connect(postgres_url(url), connect_timeout=_TIMEOUT) as connection:
            info = connection.info
            is_socket = info.host.startswith("/")
            return ServerAddress(info.host, "" if is_socket else info.hostaddr, info.port)
    except psycopg.Error as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise StoreUnavailable(f"the server of the URL cannot be reached: {reason}") from None


def led_to(url: str, place: ServerAddress, port: int) -> str:
    """Return the URL by way of a port of this machine.

    A host stays what a certificate is held against, though the line goes elsewhere.
    """
    parts = urlsplit(url)
    query = [(name, value) for name, value in parse_qsl(parts.query) if name not in _PLACES]
    if not place.host.startswith("/") and place.host != _HERE:
        query += [("host", place.host), ("hostaddr", _HERE)]
    user, at, _ = parts.netloc.rpartition("@")
    return joined(parts._replace(netloc=f"{user}{at}{_HERE}:{port}"), query)
