"""A connection whose transport is taken from the driver: the order of replies, errors, time limits, its end."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
from redis.asyncio import Connection
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import NoScriptError
from tests.servers.redis import connection_of

from holdfast.backends.redis.channel import Channel


def test_a_major_version_of_the_driver_that_was_not_tested_is_not_installed():
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    (driver,) = tomllib.loads(text)["project"]["optional-dependencies"]["redis"]
    assert driver.endswith(f",<{int(redis.__version__.partition('.')[0]) + 1}")


@pytest.fixture
async def channel(url: str) -> AsyncIterator[Channel]:
    parts = urlsplit(url)
    connection = Connection(host=parts.hostname or "", port=parts.port or 0, protocol=2, client_name="channel")
    await connection.connect()
    channel = Channel(connection)
    yield channel
    channel._transport.abort()
    await _until(lambda: channel._lost is not None)


async def _until(is_so: Any) -> None:
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110 - a channel has no event for its end
            await asyncio.sleep(0.001)


async def _one(channel: Channel, command: tuple[Any, ...], timeout: float) -> Any:
    (reply,) = await channel.exchange([command], timeout)
    return reply


async def test_a_reply_of_many_packets_is_one_reply(channel: Channel):
    text = b"x" * 3_000_000
    assert await _one(channel, ("ECHO", text), 10) == text
    assert await _one(channel, ("ECHO", "next"), 10) == b"next"


async def test_an_error_reply_is_the_drivers_error_and_the_connection_stays_usable(channel: Channel):
    assert isinstance(await _one(channel, ("EVALSHA", "0" * 40, 0), 10), NoScriptError)
    assert not channel.at_eof()
    assert await _one(channel, ("ECHO", "next"), 10) == b"next"


async def test_replies_to_commands_that_were_sent_together_come_in_their_order(channel: Channel):
    assert await channel.exchange([("ECHO", 1), ("ECHO", 2)], 10) == [b"1", b"2"]


async def test_a_reply_that_no_call_waits_for_makes_it_unusable(channel: Channel):
    channel._transport.write(b"PING\r\n")
    await _until(channel.at_eof)
    with pytest.raises(ConnectionLost):
        await _one(channel, ("ECHO", "mine"), 10)


async def test_a_call_without_a_reply_ends_after_its_time(channel: Channel):
    assert await _one(channel, ("PING",), 0.05) == b"PONG"  # the timer that it starts serves the next call, too
    began = asyncio.get_running_loop().time()
    with pytest.raises(TimeoutError):
        await _one(channel, ("BLPOP", "there-is-none", 0), 0.2)
    assert asyncio.get_running_loop().time() - began >= 0.19


async def test_a_time_limit_that_passes_as_the_first_of_two_replies_comes_still_ends_the_call(channel: Channel):
    waiting = asyncio.create_task(channel.exchange([("BLPOP", "there-is-none", 0), ("PING",)], 10))
    await asyncio.sleep(0)
    channel.data_received(b"+OK\r\n")  # the caller has not taken it yet
    assert channel._alarm is not None
    channel._alarm.cancel()
    channel._until = 0.0
    channel._check_time()
    with pytest.raises(TimeoutError, match="no reply in time"):
        await asyncio.wait_for(waiting, 5)


async def test_a_call_whose_connection_is_closed_fails_and_so_does_the_next(channel: Channel, url: str):
    number = await _one(channel, ("CLIENT", "ID"), 10)
    waiting = asyncio.create_task(_one(channel, ("BLPOP", "there-is-none", 0), 10))
    await asyncio.sleep(0)
    client: Any = connection_of(url)
    client.client_kill_filter(_id=number)
    with pytest.raises(ConnectionLost):
        await waiting
    with pytest.raises(ConnectionLost):
        await _one(channel, ("PING",), 10)
