"""A primary and its replica, and the ways in which the first is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tests.servers.redis import connection_of, own_redis

from holdfast.testing.redis_server import Flavour, RedisServer

PATIENCE = 30.0


def until(is_so: Callable[[], bool]) -> None:
    """Wait until something holds that no event announces."""
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Pair(NamedTuple):
    """A primary and its replica."""

    primary: RedisServer
    replica: RedisServer

    def url(self, *settings: str) -> str:
        return "&".join([f"{self.primary.url}?name=pair", *settings])

    @property
    def replica_url(self) -> str:
        return f"{self.replica.url}?name=pair"

    def client(self) -> Any:
        return connection_of(self.primary.url)

    def is_replicated(self) -> bool:
        """Whether the replica has all; each question is a write, because WAIT waits for those of its connection."""
        with self.client().pipeline(transaction=False) as pipeline:
            return bool(pipeline.set("asked", 1).wait(1, 1000).execute()[1] == 1)

    def is_copied(self) -> bool:
        """Whether the replica has loaded the data set of this start of the primary."""
        primary, replica = (connection_of(url).info("replication") for url in (self.primary.url, self.replica.url))
        return bool(replica["master_link_status"] == "up" and replica["master_replid"] == primary["master_replid"])

    def cut(self) -> None:
        """Freeze the replica and close its connection: from now on the primary acknowledges what no replica gets."""
        until(self.is_replicated)
        self.replica.freeze()
        self.client().client_kill_filter(_type="replica")

    def fail_over(self) -> None:
        """Kill the primary, and promote the replica."""
        self.primary.kill()
        self.replica.resume()
        connection_of(self.replica.url).replicaof("NO", "ONE")


@contextmanager
def pair(flavour: Flavour, **settings: str) -> Iterator[Pair]:
    """Start a primary and a replica; the settings are those of the primary."""
    with own_redis(flavour, **settings) as primary, own_redis(flavour, primary=primary) as replica:
        both = Pair(primary, replica)
        until(both.is_replicated)
        yield both
