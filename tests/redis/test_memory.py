"""The server's memory for a job that waits."""

from __future__ import annotations

from tests.servers.redis import connection_of, own_redis

from holdfast.testing.conformance.base import a_job
from holdfast.testing.redis_server import Flavour
from holdfast.testing.stores import open_store

JOBS = 20_000
SPECIFIED = {"valkey": 224, "redis": 314}  # bytes of a ready job with a payload of 43 bytes
MORE = 1.2


async def test_a_waiting_job_takes_little_more_memory_than_specified(flavour: Flavour):
    with own_redis(flavour) as server:
        client = connection_of(server.url)
        async with open_store(f"{server.url}?name=a") as backend:
            payload = f'"{"x" * 41}"'
            await backend.jobs.enqueue([a_job(payload=payload)])
            before = client.info("memory")["used_memory_dataset"]
            for _ in range(0, JOBS, 500):
                await backend.jobs.enqueue([a_job(payload=payload) for _ in range(500)])
            taken = (client.info("memory")["used_memory_dataset"] - before) / JOBS
    assert SPECIFIED[flavour] / MORE < taken < SPECIFIED[flavour] * MORE
