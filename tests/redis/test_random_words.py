"""A script with wrong words fails with nothing written, or leaves a store whose keys agree."""

from __future__ import annotations

import asyncio
import struct
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from redis.exceptions import ResponseError
from tests.redis.whole import check_whole
from tests.servers.redis import connection_of, own_store

from holdfast.app.open import open_backend
from holdfast.backends.redis import scripts
from holdfast.model.outcome import Completed
from holdfast.store.values import Finish
from holdfast.testing.conformance.base import a_job, claim

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

# The others read, or do what they are told to: there is no rule in them that could refuse it.
RULES = (scripts.ENQUEUE, scripts.CLAIM, scripts.COMPLETE, scripts.EXTEND, scripts.PROMOTE, scripts.DELETE)
JOB = struct.Struct(">16sIiIBq")


async def _fill(url: str) -> None:
    """Leave ready, running, blocked and completed jobs, with payloads of all sizes, order keys and results."""
    backend = open_backend(url)
    await backend.schema.install()
    await backend.open()
    jobs = [a_job(payload=f'"{"x" * size}"') for size in (3, 1500)]
    jobs += [replace(a_job(), order_key="k") for _ in range(3)]
    await backend.jobs.enqueue([*jobs, *(a_job(task="other") for _ in range(8))])
    held = await claim(backend, tasks=["greet", "other"], limit=8)
    outcomes = [Completed(), Completed('"done"')]
    await backend.jobs.finish([Finish(job.lease, end) for job, end in zip(held, outcomes, strict=False)])
    await backend.close()


class Filled:
    """A store, and words that mean something in it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client = cast("Any", connection_of(url))
        self.prefix = f"{{holdfast:{parse_qs(urlsplit(url).query)['name'][0]}}}:".encode()
        members: list[bytes] = [
            name
            for key in self.client.scan_iter(match=self.prefix + b"*")
            if self.client.type(key) == b"zset"
            for name in self.client.zrange(key, 0, -1)
            if len(name) == 24
        ]
        running: list[bytes] = self.client.zrange(self.prefix + b"leases", 0, -1)
        leases = [name + self._fence(name) for name in running]
        sets = [key.removeprefix(self.prefix) for key in self.client.scan_iter(match=self.prefix + b"[rxsbc][0-9]")]
        numbers = [str(number).encode() for number in (-1, 0, 1, 2, 500, 2**53, 10**17)]
        lanes = [struct.pack(">I", number) for number in (0, 1, 7)]
        shape = self.client.hget(self.prefix + b"meta", "shape")
        heads = st.builds(
            JOB.pack,
            st.sampled_from([*(name[8:] for name in members), *(bytes([number]) * 16 for number in range(9))]),
            st.integers(0, 3),
            st.integers(-9, 9),
            st.integers(1, 9),
            st.integers(0, 31),
            st.integers(-(2**50), 2**50),
        )
        bodies = st.builds(
            lambda key, size, body: struct.pack(">H", len(key)) + key + struct.pack(">I", size) + body,
            st.binary(max_size=5),
            st.integers(0, 40),
            st.binary(max_size=40),
        )
        self.words = st.one_of(
            st.tuples(heads, bodies | st.binary(max_size=9)).map(b"".join),
            st.sampled_from([*members, *leases, *sets, *numbers, *lanes, shape, b"", b"worker"]),
            st.lists(st.sampled_from([*members, *leases, *lanes]), max_size=4).map(b"".join),
            st.binary(max_size=60),
        )

    def _fence(self, name: bytes) -> bytes:
        record: bytes = self.client.hget(self.prefix + b"j" + name[8:12], name[8:])
        return record[48:56]

    def dump(self) -> dict[bytes, bytes]:
        """Return all keys but the counter of seqs: a gap in them does no harm."""
        keys = list(self.client.scan_iter(match=self.prefix + b"*", count=10_000))
        return {key: self.client.dump(key) for key in keys if not key.endswith(b":seq")}


@pytest.mark.parametrize("script", RULES, ids=lambda script: script.name)
def test_a_script_with_wrong_words_writes_nothing_or_leaves_keys_that_agree(script: scripts.LuaScript):
    with own_store("valkey") as url:
        asyncio.run(_fill(url))
        check_whole(url)
        store = Filled(url)

        @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
        @given(st.lists(store.words, max_size=11))
        def call(words: list[bytes]) -> None:
            before = store.dump()
            try:
                store.client.eval(script.text, 1, store.prefix + b"meta", b"", b"", *words)
            except ResponseError:
                assert store.dump() == before
            else:
                check_whole(url)

        call()
