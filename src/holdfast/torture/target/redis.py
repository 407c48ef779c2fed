"""A store on a Redis or Valkey server as the target of a run, read past Holdfast's own code."""

from __future__ import annotations

import json
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlsplit

import redis

from holdfast.app.open import open_backend
from holdfast.errors import StoreUnavailable
from holdfast.torture.names import schema_of_runs
from holdfast.torture.proxy import Proxy
from holdfast.torture.resp import RespWire
from holdfast.torture.target.base import Reserved, Target
from holdfast.torture.target.redis_keys import SHARDS
from holdfast.torture.target.redis_query import RedisQuery
from holdfast.torture.urls import joined

_TIMEOUT = 10.0  # seconds for a reply


class RedisTarget(Target):
    """`Target` over the keys of one store: that of the URL's name with a suffix, which no app uses."""

    store: ClassVar = "redis"
    has_server: ClassVar = True
    has_snapshots: ClassVar = False
    errors = (redis.RedisError,)

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query))
        self._name = schema_of_runs(query.get("name"))
        named = joined(parts, {**query, "name": self._name}.items())
        super().__init__(named, open_backend(named).url, None)  # refuses what is no URL, and hides the password
        self._server = joined(parts._replace(scheme=parts.scheme.replace("valkey", "redis")), ())
        self._prefix = f"{{holdfast:{self._name}}}:".encode()
        self._marker = self._prefix + b"torture"
        self._reservation: Any = None

    def _client(self, name: str = "conductor") -> Any:
        settings: dict[str, Any] = {"socket_timeout": _TIMEOUT, "client_name": f"holdfast-torture-{name}"}
        return redis.Redis.from_url(self._server, **settings)  # pyright: ignore[reportUnknownMemberType]

    @contextmanager
    def _connected(self) -> Generator[Any]:
        try:
            with self._client() as client:
                yield client
        except redis.RedisError as error:
            raise StoreUnavailable(f"{self.shown} cannot be used: {error}") from error

    @contextmanager
    def reserved(self) -> Generator[None]:
        """Name a connection after the target: the server shows such names, and forgets them with the connection."""
        self._reservation = self._client(f"run.{self._name}")
        try:
            self.require_reservation()
            yield
        finally:
            self._reservation.close()
            self._reservation = None

    def require_reservation(self) -> None:
        """Look for connections of this name; one that was lost was made again, under the same name."""
        if self._reservation is not None:
            name = f"holdfast-torture-run.{self._name}"
            if sum(each["name"] == name for each in self._reservation.client_list()) > 1:
                raise Reserved(self.shown)

    def exists(self) -> bool:
        """Return whether there is a store, or what a run has made before it."""
        with self._connected() as client:
            return bool(client.exists(self._prefix + b"meta", self._marker))

    def create(self) -> None:
        """Drop what an earlier run has left, and set the marker."""
        self.drop()
        with self._connected() as client:
            client.set(self._marker, "made by a torture run")

    def prepare(self) -> None:
        """Set the key on which a command of an effect fails; the lists of effects are created by the first of each."""
        with self._connected() as client:
            client.set(self._prefix[:-1] + b"/torture:text", "no number")

    def remove(self) -> None:
        """Delete all keys of the store, and the effects next to it."""
        with self._connected() as client:
            for ending in (b":*", b"/torture:*"):
                for key in client.scan_iter(match=self._prefix[:-1] + ending, count=5000):
                    client.unlink(key)

    @contextmanager
    def snapshot(self) -> Generator[RedisQuery]:
        """Read; each statement by itself."""
        with self._connected() as client:
            yield RedisQuery(client, self._prefix)

    def write(self, connection: Any, table: str, values: tuple[Any, ...], line: str) -> None:
        """Append to one of several lists, and count: two commands, so that a failed effect has to be undone."""
        shard = zlib.crc32(line.encode()) % SHARDS  # each stays short enough to be copied before another command
        connection.queue("HINCRBY", connection.key("torture:written"), table, 1)
        connection.queue("RPUSH", connection.key(f"torture:{table}:{shard}"), json.dumps(values))

    def clock(self) -> int:
        """Return the server's clock."""
        with self._connected() as client:
            seconds, micros = client.time()
            return int(seconds) * 1_000_000 + int(micros)

    def open_connections(self) -> int:
        """Return how many connections of workers and producers there are."""
        return len(self.sessions())

    def sessions(self) -> list[int]:
        """Return the connections under the name of the store."""
        with self._connected() as client:
            return [int(each["id"]) for each in client.client_list() if each["name"] == f"holdfast.{self._name}"]

    def terminate(self, sessions: list[int]) -> int:
        """Close connections."""
        with self._connected() as client:
            return sum(int(client.client_kill_filter(_id=str(session))) for session in sessions)

    def integrity(self) -> str:
        """Return which jobs are not in the one set of their state."""
        with self._connected() as client:
            return "; ".join(RedisQuery(client, self._prefix).misplaced()[:5])

    def versions(self) -> dict[str, str]:
        """Return the version and the settings of durability."""
        with self._connected() as client:
            info, settings = client.info("server"), client.config_get("append*")
            name = "valkey" if "valkey_version" in info else "redis"
        chosen = {setting: settings.get(setting, "unknown") for setting in ("appendonly", "appendfsync")}
        return {name: str(info[f"{name}_version"]), **chosen}

    def proxy(self) -> Proxy:
        """Start a proxy before the server."""
        return Proxy(self.url, RespWire())

    def is_encrypted(self) -> bool:
        """Return whether the URL asks for TLS."""
        return urlsplit(self.url).scheme in {"rediss", "valkeys"}
