"""Redis for benchmarks: a store with a name of its own for each measurement, on the server that the URL names."""

from __future__ import annotations

import secrets
import struct
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import redis

from benchmarks.raw import redis as raw_redis
from benchmarks.stores import Held, Inserter, Place, UnreachableError, Yardstick

_PAGE = 10_000
_ID = 16  # bytes
_SETS = {"ready": "r", "underway": "xst", "given_up": "fk"}
_COMPLETED = 6
_ATTEMPT, _LEASE = struct.Struct(">I"), struct.Struct(">QQQ")
_AT_ATTEMPT, _AT_LEASE = 4, 48


class RedisStore:
    """Stores on one server."""

    name = "redis"
    raw: Yardstick = raw_redis

    def __init__(self, url: str) -> None:
        self._server = url.partition("?")[0].replace("valkey", "redis", 1)
        self._client: Any = redis.Redis.from_url(self._server)

    @property
    def version(self) -> str:
        try:
            info = self._client.info("server")
        except redis.RedisError as error:
            message = f"the server cannot be reached: {error}"
            raise UnreachableError(message) from None
        name = "valkey" if "valkey_version" in info else "redis"
        settings = self._client.config_get("append*")
        synced = settings["appendfsync"] if settings["appendonly"] == "yes" else "no append-only file"
        allocator = self._client.info("memory")["mem_allocator"]
        return f"{name} {info[f'{name}_version']}, {allocator}, {synced}"

    @property
    def driver(self) -> str:
        return f"redis-py {redis.__version__}"

    @contextmanager
    def fresh(self) -> Generator[Place]:
        name = f"bench_{secrets.token_hex(6)}"
        url = f"{self._server}?name={name}"
        try:
            yield Place(url, url)
        finally:
            for prefix in (f"{{holdfast:{name}}}:*", f"{{raw:{name}}}:*"):
                for key in self._client.scan_iter(match=prefix, count=_PAGE):
                    self._client.unlink(key)

    def _at(self, place: Place) -> bytes:
        return f"{{holdfast:{parse_qs(urlsplit(place.url).query)['name'][0]}}}:".encode()

    def _sizes(self, place: Place) -> dict[str, int]:
        at = self._at(place)
        lanes = range(self._client.llen(at + b"lanes"))
        sizes = {
            what: sum(self._client.zcard(at + f"{letter}{lane}".encode()) for letter in letters for lane in lanes)
            for what, letters in _SETS.items()
        }
        return {**sizes, "completed": sum(self._client.llen(at + f"c{lane}".encode()) for lane in lanes)}

    def _records(self, place: Place) -> Iterator[bytes]:
        """Return the records of all jobs."""
        for key in self._client.scan_iter(match=self._at(place) + b"j" + b"?" * 4, count=_PAGE):
            for field, record in self._client.hscan_iter(key, count=_PAGE):
                if len(field) == _ID:
                    yield record

    def held(self, place: Place) -> Held:
        ids = highest = 0
        for record in self._records(place):
            ids += 1
            if record[0] == _COMPLETED:
                highest = max(highest, _ATTEMPT.unpack_from(record, _AT_ATTEMPT)[0])
        return Held(ids=ids, **self._sizes(place), highest_attempt=highest)

    def span(self, place: Place, since: int = 0) -> float:
        ended = (_LEASE.unpack_from(each, _AT_LEASE) for each in self._records(place) if each[0] == _COMPLETED)
        times = [(started, finished) for _, started, finished in ended if started >= since]
        return float(max(finished for _, finished in times) - min(started for started, _ in times)) / 1e6

    def now(self) -> int:
        seconds, micros = self._client.time()
        return int(seconds) * 1_000_000 + int(micros)

    def completed(self, place: Place) -> int:
        return self._sizes(place)["completed"]

    @contextmanager
    def snapshot(self, place: Place) -> Generator[None]:
        raise NotImplementedError(place)  # it has none: `drain.held` is not measured here

    @contextmanager
    def inserting(self, place: Place) -> Generator[Inserter]:
        with closing(raw_redis.connect(place.raw)) as loop:
            bulk, one = partial(raw_redis.bulk, loop), partial(raw_redis.one, loop)
            yield Inserter(bulk, one, partial(raw_redis.held, place.raw))

    @contextmanager
    def foreign(self) -> Generator[str]:
        """Give an empty database of the server by its number."""
        for number in range(15, 0, -1):
            url = f"{self._server.rpartition('/')[0]}/{number}"
            with redis.Redis.from_url(url) as client:
                if client.dbsize() == 0:
                    try:
                        yield url
                    finally:
                        client.flushdb()
                    return
        message = "no database of the server is empty: none can be given to another library"
        raise RuntimeError(message)

    @contextmanager
    def metered(self, place: Place) -> Generator[Callable[[], Mapping[str, float]]]:  # noqa: ARG002 - as the protocol
        spent: dict[str, float] = {}
        before = self._reading()
        yield lambda: spent
        spent.update({name: value - before[name] for name, value in self._reading().items()})

    def _reading(self) -> dict[str, float]:
        cpu, persistence = self._client.info("cpu"), self._client.info("persistence")
        reading = {"server_cpu": float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])}
        if persistence.get("aof_enabled"):
            reading["wal"] = float(persistence["aof_current_size"])
        return reading

    def memory(self) -> int:
        """Return the bytes that the server has allocated, once it has freed what was deleted before."""
        while (found := self._client.info("memory"))["lazyfree_pending_objects"]:
            pass  # nothing announces the end, which is near
        return int(found["used_memory"])
