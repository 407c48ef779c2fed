"""A store in a cluster is one slot; while that is moved, nothing is written on either node."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

import pytest
from tests.redis.whole import check_whole
from tests.servers.redis import connection_of, own_redis

from holdfast.app.open import open_backend
from holdfast.errors import SchemaMismatch, StoreUnavailable
from holdfast.model.outcome import Completed
from holdfast.store.values import Finish, Verdict
from holdfast.testing.conformance.base import a_job, claim, enqueue, hold_one
from holdfast.testing.redis_server import Flavour
from holdfast.testing.stores import open_store

SLOTS = 16384


def _until(is_so) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("flavour", ["valkey", "redis"])
async def test_while_its_slot_is_moved_a_store_is_unavailable_and_nothing_is_written(flavour: Flavour):
    with ExitStack() as stack:
        nodes = [stack.enter_context(own_redis(flavour, cluster_enabled="yes")) for _ in range(2)]
        here, there = clients = [connection_of(node.url) for node in nodes]
        here.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, SLOTS - 1)
        here.execute_command("CLUSTER", "MEET", "127.0.0.1", nodes[1].port)
        ids: list[Any] = [client.execute_command("CLUSTER", "MYID").decode() for client in clients]
        _until(lambda: all(b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO") for client in clients))
        _until(
            lambda: all(ids[1 - at] in str(each.execute_command("CLUSTER", "NODES")) for at, each in enumerate(clients))
        )
        url = f"{nodes[0].url}?name=moving"
        slot = here.execute_command("CLUSTER", "KEYSLOT", "{holdfast:moving}:meta")
        async with open_store(url) as backend:
            job = await hold_one(backend)
            there.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
            here.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])
            before = here.execute_command("CLUSTER", "COUNTKEYSINSLOT", slot)
            with pytest.raises(StoreUnavailable, match="being moved"):
                await backend.jobs.enqueue([a_job()])
            with pytest.raises(StoreUnavailable, match="being moved"):
                await claim(backend)
            with pytest.raises(StoreUnavailable, match="being moved"):
                await backend.jobs.finish([Finish(job.lease, Completed())])
            assert here.execute_command("CLUSTER", "COUNTKEYSINSLOT", slot) == before
            other = open_backend(f"{nodes[1].url}?name=moving")
            with pytest.raises((StoreUnavailable, SchemaMismatch)):
                await other.open()
            await other.close()
            assert there.execute_command("CLUSTER", "COUNTKEYSINSLOT", slot) == 0
            here.execute_command("CLUSTER", "SETSLOT", slot, "STABLE")
            assert await backend.jobs.finish([Finish(job.lease, Completed())]) == [Verdict.DONE]
            await enqueue(backend, a_job())
        check_whole(url)
