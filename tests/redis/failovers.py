"""Fail over under load, without and with a wait for the replica, and count what was acknowledged and is lost.

```console
$ python -m tests.redis.failovers --rounds 5
```

Each round has its own primary and replica. Producers enqueue single jobs while a worker claims and completes; the line
to the replica is cut, and 0.3 s later the primary is killed and the replica promoted. Both sides are judged by what the
replica has then.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import NamedTuple

from tests.redis.replicas import Pair, pair
from tests.redis.whole import check_whole

from holdfast.errors import OutcomeUnknown, StoreUnavailable
from holdfast.model.outcome import Completed
from holdfast.store.backend import Backend
from holdfast.store.values import Finish, Verdict
from holdfast.testing.conformance.base import a_job, claim
from holdfast.testing.redis_server import Flavour
from holdfast.testing.stores import open_store

_PRODUCERS = 16
_BEFORE, _CUT = 1.0, 0.3  # seconds
_AT_ONCE = 500
WITHOUT, WITH = (), ("durability=replicated", "replica_timeout=1")


class Lost(NamedTuple):
    """What was acknowledged by the old primary, and how much of it the new one does not have."""

    enqueued: int
    enqueued_lost: int
    unknown: int
    completed: int
    completed_lost: int


async def fail_over(flavour: Flavour, *settings: str) -> Lost:
    """Run one round."""
    acknowledged: list[str] = []
    unknown: list[str] = []
    completed: list[str] = []

    async def produce(backend: Backend) -> None:
        while True:
            job = a_job()
            try:
                await backend.jobs.enqueue([job])
            except OutcomeUnknown:
                unknown.append(job.id)
            except StoreUnavailable:
                return
            else:
                acknowledged.append(job.id)

    async def work(backend: Backend) -> None:
        while True:
            try:
                jobs = await claim(backend, 50)
                verdicts = await backend.jobs.finish([Finish(job.lease, Completed()) for job in jobs])
            except (OutcomeUnknown, StoreUnavailable):
                return
            completed.extend(job.id for job, verdict in zip(jobs, verdicts, strict=True) if verdict is Verdict.DONE)
            await asyncio.sleep(0.02)

    with pair(flavour) as both:
        async with open_store(both.url(*settings)) as backend:
            tasks = [asyncio.create_task(produce(backend)) for _ in range(_PRODUCERS)]
            tasks.append(asyncio.create_task(work(backend)))
            await asyncio.sleep(_BEFORE)
            await asyncio.to_thread(both.cut)
            await asyncio.sleep(_CUT)
            await asyncio.to_thread(both.fail_over)
            await asyncio.gather(*tasks)
        states = await _states(both, [*acknowledged, *completed])
        check_whole(both.replica_url)
    return Lost(
        len(acknowledged),
        sum(job_id not in states for job_id in acknowledged),
        len(unknown),
        len(completed),
        sum(states.get(job_id) != "completed" for job_id in completed),
    )


async def _states(both: Pair, ids: list[str]) -> dict[str, str]:
    async with open_store(both.replica_url) as backend:
        pages = [ids[start : start + _AT_ONCE] for start in range(0, len(ids), _AT_ONCE)]
        return {seen.id: seen.state for page in pages for seen in await backend.insight.states(page)}


def main() -> None:
    """Print a row for each flavour and setting."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds: int = parser.parse_args().rounds
    flavours: tuple[Flavour, ...] = ("valkey", "redis")
    for flavour in flavours:
        for settings in (WITHOUT, WITH):
            found = [asyncio.run(fail_over(flavour, *settings)) for _ in range(rounds)]
            total = Lost(*map(sum, zip(*found, strict=True)))
            print(f"{flavour}, {'replicated' if settings else 'no wait'}, {rounds} rounds: {total}")  # noqa: T201


if __name__ == "__main__":
    main()
