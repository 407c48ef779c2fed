"""A store behind a unix socket: every connection of a worker uses it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.redis.whole import check_whole
from tests.servers.redis import own_redis

from holdfast import App
from holdfast.model.job import JobState


async def test_a_worker_drains_a_store_behind_a_unix_socket():
    with tempfile.TemporaryDirectory() as folder:  # the path of a socket has a hundred bytes at most
        path = Path(folder) / "valkey.sock"
        with own_redis("valkey", unixsocket=str(path)) as server:
            async with App(f"unix://{path}?name=a") as app:

                @app.task
                async def double(number: int) -> int:
                    return 2 * number

                jobs = await double.enqueue_many([{"number": number} for number in range(50)])
                async with app.working(concurrency=4):
                    assert [await job.result(timeout=20) for job in jobs] == [2 * number for number in range(50)]
                    assert await (await double.enqueue(50)).result(timeout=20) == 100
                assert len((await app.jobs.list(JobState.COMPLETED)).jobs) == 50  # the first page
            check_whole(f"{server.url}?name=a")
