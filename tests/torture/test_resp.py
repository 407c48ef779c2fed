"""The requests of a Redis client as the proxy sees them, and the cuts that it makes at them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st
from redis.backoff import NoBackoff
from redis.retry import Retry
from tests.servers.redis import server_url

from holdfast.torture.proxy import Proxy, When
from holdfast.torture.resp import RespRequests, RespWire

ADD = "#!lua flags=allow-oom\nreturn redis.call('INCR', KEYS[1])"
LOOK = "#!lua flags=no-writes\nreturn redis.call('GET', KEYS[1])"


def packed(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


@given(st.lists(st.lists(st.binary(max_size=20), min_size=1, max_size=4), max_size=5), st.integers(1, 30))
def test_whatever_the_pieces_are_each_request_is_passed_on_once_and_whole(commands, size: int):
    sent = [packed(*words) for words in commands]
    stream = b"".join(sent)
    requests = RespRequests({})
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert [request for piece in pieces for request, _ in requests.feed(piece)] == sent


def test_a_call_of_a_script_is_known_by_the_text_that_any_connection_has_loaded():
    wire = RespWire()
    sha = hashlib.sha1(ADD.encode(), usedforsecurity=False).hexdigest().encode()
    list(wire.requests().feed(packed(b"SCRIPT", b"LOAD", ADD.encode())))
    ((_, statement),) = wire.requests().feed(packed(b"EVALSHA", sha, b"1", b"key"))
    assert statement == f"EVAL {ADD}"


@pytest.mark.parametrize(
    ("statement", "writes"),
    [(f"EVAL {ADD}", True), ("EVAL 0123abcd", True), (f"EVAL {LOOK}", False), ("PING", False), ("SUBSCRIBE a", False)],
)
def test_what_writes_is_a_script_that_does_not_deny_it(statement: str, writes: bool):
    assert bool(re.search(RespWire().writes, statement, re.DOTALL)) is writes


def test_nothing_is_seen_of_an_encrypted_connection():
    requests = RespRequests({})
    assert list(requests.feed(b"\x16\x03\x01")) == [(b"\x16\x03\x01", None)]
    assert list(requests.feed(b"*1\r\n")) == [(b"*1\r\n", None)]


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    proxy = Proxy(server_url("valkey"), RespWire())
    yield proxy
    proxy.close()


@pytest.fixture
def through(proxy: Proxy) -> Iterator[Any]:
    with redis.Redis.from_url(proxy.url, retry=Retry(NoBackoff(), 0)) as client:
        yield client
        client.delete("cut")


@pytest.mark.parametrize(("when", "done"), [("before", 0), ("after", 1)])
def test_a_cut_before_a_script_has_no_effect_and_one_after_it_loses_only_the_reply(
    proxy: Proxy, through: Any, when: When, done: int
):
    through.delete("cut")
    add, look = through.script_load(ADD), through.script_load(LOOK)
    proxy.arm(when, alone=True)
    assert through.evalsha(look, 1, "cut") is None, "a script that only reads is not cut at"
    with pytest.raises(redis.ConnectionError):
        through.evalsha(add, 1, "cut")

    assert proxy.cut_within(1, alone=True)
    assert int(through.get("cut") or 0) == done
    assert proxy.cuts_alone == 1
