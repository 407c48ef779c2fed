"""Stores on a server of this process, for what only Redis has."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from tests.servers.redis import own_store

from holdfast.backends.redis.backend import RedisBackend
from holdfast.testing.clock import ManualClock
from holdfast.testing.redis_server import Flavour
from holdfast.testing.stores import open_store


@pytest.fixture(params=["valkey", pytest.param("redis", marks=pytest.mark.slow)])
def flavour(request: pytest.FixtureRequest) -> Flavour:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def url(flavour: Flavour) -> Iterator[str]:
    with own_store(flavour) as url:
        yield url


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def backend(url: str, clock: ManualClock) -> AsyncIterator[RedisBackend]:
    async with open_store(url, clock=clock) as backend:
        assert isinstance(backend, RedisBackend)
        yield backend
