"""A handler reads no more than its transaction may: a larger reply stays on the server."""

from __future__ import annotations

from typing import Any

import pytest
from tests.servers.redis import connection_of

from holdfast.backends.redis.backend import RedisBackend
from holdfast.backends.redis.scripts import HANDLER_READ
from holdfast.backends.redis.steps import ScriptCall
from holdfast.backends.redis.wire import AsyncWire
from holdfast.errors import ConfigError
from holdfast.testing.conformance.base import LEASE, hold_one


async def test_a_large_reply_is_refused_before_it_is_sent(
    backend: RedisBackend, url: str, monkeypatch: pytest.MonkeyPatch
):
    job = await hold_one(backend)
    client: Any = connection_of(url)
    key = backend._parts.here.server.location.prefix.replace("}:", "}/") + "large"
    client.rpush(key, *(f"{number:010}" for number in range(150_000)))
    received: list[int] = []
    call = AsyncWire.call

    async def measured(wire: AsyncWire, asked: ScriptCall, store: bytes) -> Any:
        reply = await call(wire, asked, store)
        if asked.script is HANDLER_READ:
            received.append(len(str(reply)))
        return reply

    monkeypatch.setattr(AsyncWire, "call", measured)
    async with backend.transactions.begin(job.lease, limit=LEASE) as transaction:
        assert len(await transaction.connection.read("LRANGE", key, 0, 49_999)) == 50_000
        with pytest.raises(ConfigError, match="more than 1,000,000 bytes"):
            await transaction.connection.read("LRANGE", key, 0, -1)
    assert [size > 500_000 for size in received] == [True, False]
