"""A store in a cluster is one slot; while that is moved, nothing is written on either node."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest
from tests.redis.replicas import until
from tests.redis.whole import check_whole
from tests.servers.redis import connection_of, own_redis

from holdfast import App
from holdfast.app.open import open_backend
from holdfast.errors import ConfigError, StoreUnavailable
from holdfast.model.outcome import Completed
from holdfast.store.values import Finish, Verdict
from holdfast.testing.conformance.base import LEASE, a_job, claim, enqueue, hold_one
from holdfast.testing.redis_server import RedisServer
from holdfast.testing.stores import open_store
from holdfast.testing.throw_away_server import free_port

pytestmark = pytest.mark.slow
SLOTS = 16384


class Cluster(NamedTuple):
    """Two nodes; the first one has all slots."""

    nodes: list[RedisServer]
    clients: list[Any]
    ids: list[str]

    @property
    def slot(self) -> int:
        return int(self.clients[0].execute_command("CLUSTER", "KEYSLOT", "{holdfast:moving}:meta"))

    def url(self, number: int) -> str:
        return f"{self.nodes[number].url}?name=moving"

    def keys(self, number: int) -> int:
        return int(self.clients[number].execute_command("CLUSTER", "COUNTKEYSINSLOT", self.slot))

    def begin_move(self) -> None:
        here, there = self.clients
        there.execute_command("CLUSTER", "SETSLOT", self.slot, "IMPORTING", self.ids[0])
        here.execute_command("CLUSTER", "SETSLOT", self.slot, "MIGRATING", self.ids[1])

    def end_move(self) -> None:
        here, there = self.clients
        names = here.execute_command("CLUSTER", "GETKEYSINSLOT", self.slot, 10_000)
        here.execute_command("MIGRATE", "127.0.0.1", self.nodes[1].port, "", 0, 10_000, "KEYS", *names)
        for client in (there, here):
            client.execute_command("CLUSTER", "SETSLOT", self.slot, "NODE", self.ids[1])


@pytest.fixture(params=["valkey", "redis"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with ExitStack() as stack:
        nodes = [stack.enter_context(own_redis(request.param, cluster_enabled="yes")) for _ in range(2)]
        here, _ = clients = [connection_of(node.url) for node in nodes]
        here.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, SLOTS - 1)
        here.execute_command("CLUSTER", "MEET", "127.0.0.1", nodes[1].port)
        ids: list[Any] = [client.execute_command("CLUSTER", "MYID").decode() for client in clients]
        until(lambda: all(b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO") for client in clients))
        until(
            lambda: all(ids[1 - at] in str(each.execute_command("CLUSTER", "NODES")) for at, each in enumerate(clients))
        )
        yield Cluster(nodes, clients, ids)


async def test_while_its_slot_is_moved_a_store_is_unavailable_and_nothing_is_written(cluster: Cluster):
    async with open_store(cluster.url(0)) as backend, open_store(cluster.url(1)) as other:
        job = await hold_one(backend)
        cluster.begin_move()
        before = cluster.keys(0)
        for store in (backend, other):
            with pytest.raises(StoreUnavailable, match="being moved"):
                await store.jobs.enqueue([a_job()])
            with pytest.raises(StoreUnavailable, match="being moved"):
                await claim(store)
            with pytest.raises(StoreUnavailable, match="being moved"):
                await store.jobs.finish([Finish(job.lease, Completed())])
        assert (cluster.keys(0), cluster.keys(1)) == (before, 0)
        cluster.clients[0].execute_command("CLUSTER", "SETSLOT", cluster.slot, "STABLE")
        assert await backend.jobs.finish([Finish(job.lease, Completed())]) == [Verdict.DONE]
        await enqueue(backend, a_job())
    check_whole(cluster.url(0))


async def test_a_node_to_which_the_slot_is_moved_gets_no_second_store(cluster: Cluster):
    async with open_store(cluster.url(0)) as backend:
        await enqueue(backend, a_job())
        cluster.begin_move()
        meta = "{holdfast:moving}:meta"
        cluster.clients[0].execute_command("MIGRATE", "127.0.0.1", cluster.nodes[1].port, meta, 0, 10_000)
        before = cluster.keys(0), cluster.keys(1)
        assert before[1] == 1
        for number in (0, 1):
            other = open_backend(cluster.url(number))
            with pytest.raises(StoreUnavailable, match="being moved"):
                await other.open()
            await other.close()
        with pytest.raises(StoreUnavailable, match="being moved"):
            await backend.jobs.enqueue([a_job()])
        assert (cluster.keys(0), cluster.keys(1)) == before


async def test_the_level_is_that_of_the_node_that_has_the_store(cluster: Cluster):
    here, there = cluster.clients
    here.config_set("appendonly", "yes")
    async with open_store(f"{cluster.url(1)}&durability=1s") as backend:  # the other node keeps nothing
        await enqueue(backend, a_job())
    here.config_set("appendonly", "no")
    there.config_set("appendonly", "yes")
    refused = open_backend(f"{cluster.url(1)}&durability=1s")
    with pytest.raises(ConfigError, match="durability=1s"):
        await refused.open()
    await refused.close()


async def test_a_slot_that_is_moved_at_once_takes_the_store_with_it(cluster: Cluster):
    if not str(cluster.clients[0].info("server").get("valkey_version")).startswith("9"):
        pytest.skip("CLUSTER MIGRATESLOTS came with Valkey 9")
    async with open_store(cluster.url(0)) as backend:
        await backend.jobs.enqueue([a_job() for _ in range(300)])
        slots = ("SLOTSRANGE", cluster.slot, cluster.slot)
        cluster.clients[0].execute_command("CLUSTER", "MIGRATESLOTS", *slots, "NODE", cluster.ids[1])
        completed = 0
        async with asyncio.timeout(50):
            while completed < 600 or cluster.keys(0):
                await backend.jobs.enqueue([a_job()])
                leased = await claim(backend, limit=3)
                verdicts = await backend.jobs.finish([Finish(job.lease, Completed()) for job in leased])
                assert verdicts == [Verdict.DONE] * len(leased)
                completed += len(leased)
    assert cluster.keys(1) > 0
    check_whole(cluster.url(1))


async def test_a_store_is_found_on_the_node_that_has_its_slot_also_after_a_move(cluster: Cluster):
    nodes = f"127.0.0.1:{free_port()},127.0.0.1:{cluster.nodes[1].port}"
    async with (
        App(cluster.url(1)) as app,
        open_store(f"redis+cluster://{nodes}?name=moving") as backend,
    ):

        @app.task(queue="doubled")
        async def double(number: int) -> int:
            return 2 * number

        job = await hold_one(backend)
        extender = backend.extender()
        assert extender.extend([job.lease], LEASE).lost == []
        async with app.working(concurrency=2, queues=["doubled"]):
            assert await (await double.enqueue(1)).result(timeout=20) == 2
            assert (cluster.keys(0) > 0, cluster.keys(1)) == (True, 0)
            cluster.begin_move()
            cluster.end_move()
            assert await (await double.enqueue(2)).result(timeout=20) == 4
        assert (cluster.keys(0), cluster.keys(1) > 0) == (0, True)
        assert extender.extend([job.lease], LEASE).lost == []
        extender.close()
        assert await backend.jobs.finish([Finish(job.lease, Completed())]) == [Verdict.DONE]
        again = await (await double.enqueue(3)).state()
        assert again == "ready"
    check_whole(cluster.url(1))
