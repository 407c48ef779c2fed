"""A script with wrong words fails with nothing written, or leaves a store whose keys agree."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from datetime import timedelta
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
from holdfast.backends.redis.record import Extra, packed_extra
from holdfast.model.outcome import Completed, Failed, Outcome
from holdfast.store.values import Finish
from holdfast.testing.conformance.base import FAILURE, a_job, claim

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

# The others read, or write what their words say: there is no rule in them that could refuse it.
RULES = (
    *(scripts.ENQUEUE, scripts.STAGE, scripts.CLAIM, scripts.COMPLETE, scripts.EXTEND, scripts.PROMOTE),
    *(scripts.DELETE, scripts.EFFECT),
)
EXAMPLES = 80
RIGHT = 40  # examples more, of the words that a script expects;
WRITING = 3  # of these, at least, write something
RESULT = packed_extra(Extra(result='"done"'))
JOB = struct.Struct(">16sIiIBq")


async def _fill(url: str) -> None:
    """Leave ready, running, blocked and completed jobs, with payloads of all sizes, order keys and results."""
    backend = open_backend(url)
    await backend.schema.install()
    await backend.open()
    jobs = [a_job(payload=f'"{"x" * size}"') for size in (3, 1500)]
    jobs += [replace(a_job(), order_key="k") for _ in range(3)]
    await backend.jobs.enqueue([*jobs, *(a_job(task="other") for _ in range(8))])
    await backend.jobs.enqueue([a_job(delay=timedelta(microseconds=number)) for number in range(5)])
    held = await claim(backend, tasks=["greet", "other"], limit=8)
    outcomes: list[Outcome] = [Completed(), Completed('"done"'), Failed(FAILURE), Failed(FAILURE)]
    await backend.jobs.finish([Finish(job.lease, end) for job, end in zip(held, outcomes, strict=False)])
    await backend.close()


def _with_results(words: list[bytes]) -> list[bytes]:
    """Return words for a completion with results as they are packed: it does not look into them."""
    return [RESULT if place and place % 2 == 0 else word for place, word in enumerate(words)]


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
        places = [
            (key.removeprefix(self.prefix), name, b"%d" % score)
            for key in self.client.scan_iter(match=self.prefix + b"[fkx][0-9]")
            for name, score in self.client.zrange(key, 0, -1, withscores=True)
        ]
        places += [(sets[0], members[0], b"0")]
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
        jobs = st.tuples(heads, bodies).map(b"".join)
        self.shapes = _shapes(
            shape,
            jobs=jobs,
            leases=leases,
            members=members,
            places=places,
            lanes=lanes,
            key=self.prefix[:-1] + b"/total",
        )
        self._words = st.one_of(
            jobs,
            st.tuples(heads, st.binary(max_size=9)).map(b"".join),
            st.sampled_from([*members, *leases, *sets, *numbers, *lanes, shape, b"", b"worker"]),
            st.lists(st.sampled_from([*members, *leases, *lanes]), max_size=4).map(b"".join),
            st.binary(max_size=60),
        )

    def words(self, script: scripts.LuaScript) -> st.SearchStrategy[list[bytes]]:
        """Return words for a script: any, or those that it expects, perhaps with a wrong one among them."""
        right = self.shapes[script.name]

        def spoilt(words: list[bytes], place: int, word: bytes) -> list[bytes]:
            return [*words[: place % len(words)], word, *words[place % len(words) + 1 :]]

        return st.one_of(
            right, st.builds(spoilt, right, st.integers(0, 6), self._words), st.lists(self._words, max_size=11)
        ).map(_with_results if script is scripts.COMPLETE else list)

    def _fence(self, name: bytes) -> bytes:
        record: bytes = self.client.hget(self.prefix + b"j" + name[8:12], name[8:])
        return record[48:56]

    def names(self) -> list[bytes]:
        """Return all keys, also those of effects."""
        return list(self.client.scan_iter(match=self.prefix[:-1] + b"*", count=10_000))

    def content(self) -> dict[bytes, Any]:
        """Return what is in all keys."""
        reads = {
            b"string": self.client.get,
            b"hash": self.client.hgetall,
            b"set": self.client.smembers,
            b"zset": lambda key: self.client.zrange(key, 0, -1, withscores=True),
            b"list": lambda key: self.client.lrange(key, 0, -1),
        }
        return {key: reads[self.client.type(key)](key) for key in self.names()}

    def restore(self, dumped: dict[bytes, bytes]) -> None:
        """Bring the store back to what it was."""
        with self.client.pipeline(transaction=False) as pipeline:
            pipeline.delete(*self.names())
            for key, text in dumped.items():
                pipeline.restore(key, 0, text)
            pipeline.execute()


def _shapes(
    shape: bytes,
    *,
    jobs: st.SearchStrategy[bytes],
    leases: list[bytes],
    members: list[bytes],
    places: list[tuple[bytes, bytes, bytes]],
    lanes: list[bytes],
    key: bytes,
) -> dict[str, st.SearchStrategy[list[bytes]]]:
    """Return the words that each script expects, by its name."""

    def one_of(*words: bytes) -> st.SearchStrategy[bytes]:
        return st.sampled_from(words)

    def joined(*parts: bytes) -> st.SearchStrategy[bytes]:
        return st.lists(st.sampled_from(parts), max_size=4, unique=True).map(b"".join)

    def flat(*parts: Any) -> st.SearchStrategy[list[bytes]]:
        return st.tuples(*parts).map(lambda found: [word for part in found for word in part])

    held = joined(*leases, leases[0][:-1] + b"x")
    numbers = one_of(b"1", b"2", b"500", b"1000000000")
    switch = one_of(b"0", b"1")
    ends = flat(st.tuples(held), one_of(b"", b"1", b"2").map(lambda number: (number, RESULT) if number else ()))
    effect = one_of(b"SET", b"INCR").map(
        lambda name: [b"1", b"3", name, key, b"1"] if name == b"SET" else [b"1", b"2", name, key]
    )
    return {
        "enqueue": st.lists(jobs, min_size=1, max_size=4),
        "stage": flat(
            st.tuples(
                st.just(b"a batch of 16 b."), switch | st.just(b"+"), one_of(b"", b"1000000"), one_of(b"0", b"0", b"2")
            ),
            st.lists(jobs, max_size=2),
        ),
        "claim": flat(
            st.tuples(st.just(shape), st.just(b"worker"), numbers, switch, numbers, numbers, joined(*lanes)),
            st.just(b"").map(lambda word: (word,)) | joined(*members).map(lambda word: (word, b"0")),
        ),
        "complete": ends,
        "extend": st.tuples(held, numbers, switch).map(list),
        "promote": st.tuples(st.integers(0, 10**6).map(lambda number: str(number).encode())).map(list),
        "delete": st.lists(st.sampled_from(places), min_size=1, max_size=3).map(
            lambda found: [word for place in found for word in place]
        ),
        "effect": flat(
            st.tuples(held, st.just(b"0"), st.just(b"0"), st.just(b"1000")),
            st.just([b"0"]) | effect,
            st.just([b"0"]),
            ends.map(lambda words: [str(len(words)).encode(), *words]),
        ),
    }


@pytest.mark.parametrize("script", RULES, ids=lambda script: script.name)
def test_a_script_with_wrong_words_writes_nothing_or_leaves_keys_that_agree(script: scripts.LuaScript):
    with own_store("valkey") as url:
        asyncio.run(_fill(url))
        check_whole(url)
        store = Filled(url)
        before, dumped = store.content(), {key: store.client.dump(key) for key in store.names()}

        def writes(words: list[bytes]) -> bool:
            """Call the script; return whether it has written something, which is undone."""
            changed: set[bytes] = set()
            try:
                try:
                    store.client.eval(script.text, 1, store.prefix + b"meta", b"", b"", *words)
                except ResponseError:
                    changed = _changes(before, store.content())
                    assert changed <= {store.prefix + b"seq"}, "a gap in the seqs does no harm"
                    return False
                changed = _changes(before, store.content())
                check_whole(url)
                return bool(changed)
            finally:
                if changed:
                    store.restore(dumped)

        assert _called(writes, store.shapes[script.name], RIGHT) >= WRITING, "the guards are passed"
        _called(writes, store.words(script), EXAMPLES)


def _called(act: Callable[[list[bytes]], bool], words: st.SearchStrategy[list[bytes]], most: int) -> int:
    """Call with at most so many examples; return how many answers were true."""
    answers: list[bool] = []

    @settings(max_examples=most, deadline=None, suppress_health_check=list(HealthCheck))
    @given(words)
    def call(some: list[bytes]) -> None:
        answers.append(act(some))

    call()
    return sum(answers)


def _changes(before: dict[bytes, Any], after: dict[bytes, Any]) -> set[bytes]:
    """Return the keys that are not the same."""
    return {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
