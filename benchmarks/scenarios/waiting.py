"""Bytes: what a waiting, a running and a completed job take in a store that keeps its data in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, cast

from benchmarks.bench import Bench
from benchmarks.raw import redis as raw_redis
from benchmarks.record import Record
from benchmarks.scenarios.drain import check_done, check_raw_done
from holdfast import App, ClaimedJob
from holdfast.model.outcome import Completed
from holdfast.store.values import Finish, Verdict

if TYPE_CHECKING:
    from benchmarks.redis_store import RedisStore
    from benchmarks.stores import Place

_TEXT = "x" * 32
_PAYLOAD = f'{{"text":"{_TEXT}"}}'  # 43 bytes, as those that the layout of the records was measured with
_EACH = 500  # jobs of a claim
_LEASE = 3600.0  # seconds: longer than a run


def waiting(bench: Bench) -> list[Record]:
    """Fill the store, claim all, and complete all; then the same with the yardstick."""
    store = bench.store
    if store.name != "redis":
        return []
    memory = cast("RedisStore", store).memory
    with store.fresh() as place:
        ours = asyncio.run(_ours(bench, place, memory))
    with store.fresh() as place:
        raw = _raw(bench, place, memory)
    return [
        bench.record(f"memory.{state}", ours[state], unit="bytes/job", raw=raw[state])
        for state in ("waiting", "running", "completed")
    ]


async def _ours(bench: Bench, place: Place, memory: Callable[[], int]) -> dict[str, float]:
    count = bench.sizes.jobs
    async with App(place.url) as app:

        @app.task
        async def note(text: str) -> None: ...

        await note.enqueue(_TEXT)  # what a store takes without jobs is not in it
        before = memory()
        for first in range(0, count, _EACH):
            await note.enqueue_many([{"text": _TEXT}] * min(_EACH, count - first))
        found = {"waiting": (memory() - before) / count}
        leases = [[job.job.lease for job in held] async for held in _claims(app)]
        found["running"] = (memory() - before) / count
        done = 0
        for some in leases:
            verdicts = await app.backend.jobs.finish([Finish(lease, Completed()) for lease in some])
            done += verdicts.count(Verdict.DONE)
        found["completed"] = (memory() - before) / count
    check_done(bench, place, count=count + 1, handled=done)
    return found


async def _claims(app: App) -> AsyncGenerator[list[ClaimedJob]]:
    while held := await app.claim("default", _EACH, lease=_LEASE, worker_id="bench"):
        yield held


def _raw(bench: Bench, place: Place, memory: Callable[[], int]) -> dict[str, float]:
    count = bench.sizes.jobs
    loop = raw_redis.connect(place.raw)
    before = memory()
    raw_redis.bulk(loop, count, payload=_PAYLOAD)
    found = {"waiting": (memory() - before) / count}
    claims: list[tuple[int, list[bytes], list[bytes]]] = []
    while (claim := loop.claim("bench"))[1]:
        claims.append(claim)
    found["running"] = (memory() - before) / count
    for fence, ids, _ in claims:
        loop.finish(fence, ids)
    found["completed"] = (memory() - before) / count
    loop.close()
    check_raw_done(bench, place, count=count, handled=sum(len(ids) for _, ids, _ in claims))
    return found
