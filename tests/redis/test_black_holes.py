"""Addresses that do not answer: an extension does not wait for them until its leases expire."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from urllib.parse import urlsplit

import pytest
from redis.exceptions import RedisError
from tests.servers.redis import own_store

from holdfast.backends.redis.location import Address, RedisLocation
from holdfast.backends.redis.primary import Primary, connect_blocking
from holdfast.backends.redis.wire import Server
from holdfast.testing.conformance.base import hold_one, in_extender
from holdfast.testing.stores import open_store

LEASE = timedelta(seconds=2)


@contextmanager
def black_hole() -> Iterator[Address]:
    """Yield an address that answers no request for a connection: those that wait there are too many already."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        address = listener.getsockname()
        for _ in range(8):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(address)
        with pytest.raises(TimeoutError):
            socket.create_connection(address, timeout=0.05)
        yield Address(*address)


async def test_an_extension_passes_over_an_address_that_does_not_answer():
    with own_store("valkey") as url, black_hole() as hole:
        at = urlsplit(url)
        cluster = url.replace("redis://", "redis+cluster://").replace("/0?", "?")
        async with open_store(cluster.replace(at.netloc, f"{at.netloc},{hole.host}:{hole.port}")) as backend:
            job = await hold_one(backend)
            server: Server = backend._parts.here.server  # type: ignore[attr-defined]
            server.primary.address, server.primary._known = hole, server.primary._known[::-1]
            began = time.monotonic()
            extended = await in_extender(backend, lambda extender: extender.extend([job.lease], LEASE))
            assert time.monotonic() - began < LEASE.total_seconds() / 2
            assert (extended.lost, server.primary.address == hole) == ([], False)


def test_all_sentinels_and_servers_that_do_not_answer_take_one_timeout():
    with black_hole() as hole:
        where = f"{hole.host}:{hole.port}"
        primary = Primary(RedisLocation.parse(f"redis+sentinel://{where},{where},{where}/mymaster"))
        primary.address = hole
        began = time.monotonic()
        with pytest.raises(RedisError, match="no sentinel"):
            connect_blocking(primary, 0.3)
        assert 0.2 < time.monotonic() - began < 1
