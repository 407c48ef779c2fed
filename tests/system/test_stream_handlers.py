"""Handlers that are slow, stuck, blocking or deadly, in nodes that are real processes."""

from __future__ import annotations

import signal
import time

import pytest
from tests.system.harness import eventually
from tests.system.stream_nodes import cluster_on

from holdfast.model.allocation import ShareState


@pytest.fixture
def cluster(store, tmp_path):
    with cluster_on(store, tmp_path) as cluster:
        yield cluster


def test_a_handler_that_ends_after_the_drain_time_is_replaced_and_what_it_writes_is_refused(cluster, gate):
    barrier = gate("late")
    (anna,) = cluster.started("anna", STREAM_HANDLER="thread", STREAM_DRAIN="1")
    cluster.append(1, stream="special", do="gate", gate=barrier.path)
    cluster.handler_of("special")
    cluster.app.consumers.sync.pause("billing")  # every share is revoked; one cannot be released in time
    eventually(lambda: not any(cluster.owners().values()), "the late share was seized after its deadline")
    assert cluster.effects() == []
    cluster.app.consumers.sync.resume("billing")
    barrier.open()  # the late one goes on, and is refused
    eventually(lambda: any(call.ended for call in cluster.calls()), "the late one has ended")
    assert cluster.effects() == []
    cluster.handler_of("special")
    barrier.open()
    cluster.drained()
    cluster.assert_once_in_order(overlap_allowed=True)
    assert anna.process.poll() is None


def test_a_handler_that_can_be_cancelled_is_cut_short_after_the_drain_time_and_its_share_released(cluster, gate):
    barrier = gate("slow")
    cluster.started("anna", recovery="default", STREAM_DRAIN="0.5")
    cluster.append(1, stream="special", do="gate", gate=barrier.path)
    cluster.handler_of("special")
    barrier.reached()
    cluster.app.consumers.sync.pause("billing")
    eventually(lambda: not any(cluster.owners().values()), "all shares are free")
    barrier.close()  # the thread at the gate is nobody's any more
    assert {step.epoch for step in cluster.transitions() if step.new_state is ShareState.FREE} == {0}  # none seized
    assert cluster.effects() == []
    cluster.app.consumers.sync.resume("billing")
    cluster.handler_of("special")
    barrier.open()
    cluster.drained()
    cluster.assert_once_in_order()


def test_without_a_drain_time_a_slow_handler_is_waited_for(cluster, gate):
    barrier = gate("slow")
    cluster.started("anna", recovery=2.0, STREAM_DRAIN="none")
    cluster.append(1, stream="special", do="gate", gate=barrier.path)
    cluster.handler_of("special")
    cluster.app.consumers.sync.pause("billing")
    eventually(lambda: sum(owner is not None for owner in cluster.owners().values()) == 1, "all others are free")
    time.sleep(1.5)  # several passes of the leader, none of which may take it
    assert sum(owner is not None for owner in cluster.owners().values()) == 1
    barrier.open()
    eventually(lambda: not any(cluster.owners().values()), "the slow one is released, too")
    assert len(cluster.effects()) == 1
    cluster.app.consumers.sync.resume("billing")
    cluster.drained()
    cluster.assert_once_in_order()


def test_a_second_sigterm_breaks_off_what_the_first_one_waited_for(cluster, gate):
    barrier = gate("slow")
    (anna,) = cluster.started("anna", STREAM_DRAIN="none")
    cluster.append(1, stream="special", do="gate", gate=barrier.path)
    cluster.handler_of("special")
    barrier.reached()
    anna.signal(signal.SIGTERM)
    eventually(lambda: sum(owner is not None for owner in cluster.owners().values()) == 1, "all others are free")
    anna.signal(signal.SIGTERM)
    eventually(lambda: not any(cluster.owners().values()), "it has given back the last one")
    barrier.open()  # the thread at the gate is nobody's any more
    assert anna.end() == 0, anna.text
    assert cluster.effects() == []


@pytest.mark.parametrize("verb", ["node_heartbeat", "lead"])
def test_a_node_that_dies_of_an_unforeseen_error_ends_with_70(cluster, verb):
    anna = cluster.start("anna", STREAM_BROKEN=verb)
    assert anna.end() == 70, anna.text
    assert f"an error in {verb} that nobody foresaw" in anna.text


@pytest.mark.slow
def test_a_handler_that_ignores_its_end_ends_its_process(cluster):
    (anna,) = cluster.started("anna", STREAM_DRAIN="0.5")
    cluster.append(1, stream="special", do="stubborn")
    cluster.handler_of("special")
    anna.signal(signal.SIGTERM)
    assert anna.end(within=30.0) == 70, anna.text
    assert "did not end" in anna.text


@pytest.mark.slow
@pytest.mark.parametrize("handler", ["thread", "async"])
def test_a_handler_that_does_not_end_when_its_share_was_taken_ends_its_process_and_others_go_on(cluster, gate, handler):
    barrier = gate("stuck")
    cluster.started("anna", STREAM_HANDLER=handler, STREAM_DRAIN="0.5")
    ask = {"do": "gate", "gate": barrier.path} if handler == "thread" else {"do": "stubborn"}
    cluster.append(1, stream="special", **ask)
    cluster.handler_of("special")
    cluster.app.consumers.sync.pause("billing")
    assert cluster.nodes["anna"].end(within=30.0) == 70, cluster.nodes["anna"].text
    assert "did not end after its share was lost" in cluster.nodes["anna"].text
    assert cluster.effects() == []


def test_a_handler_that_blocks_the_event_loop_past_the_ttl_keeps_the_partitions_of_its_node(cluster, tmp_path):
    cluster.started("anna", "ben", recovery=2.0)
    owners, grants = cluster.owners(), cluster.grants()
    cluster.append(1, stream="special", do="block_once", seconds=4, mark=str(tmp_path / "blocked"))
    blocked = cluster.handler_of("special")
    cluster.append(50)
    cluster.drained()
    assert (cluster.owners(), cluster.grants()) == (owners, grants)
    cluster.assert_once_in_order()
    assert {effect.node for effect in cluster.effects() if effect.stream == "special"} == {blocked}
    assert "interrupted" not in cluster.nodes[blocked].text


@pytest.mark.parametrize("policy", ["block", "skip", "park"])
def test_an_event_that_always_fails_is_dealt_with_as_its_consumer_says_and_other_streams_flow(cluster, policy):
    cluster.started("anna", STREAM_ON_ERROR=policy)
    cluster.append(1, stream="special", do="fail")
    cluster.append(2, stream="special")
    cluster.append(48)
    done = {"block": 0, "skip": 2, "park": 0}[policy]

    def special():
        return sum(effect.stream == "special" for effect in cluster.effects())

    if policy == "block":
        cluster.nodes["anna"].line("blocks its partition")
        (part,) = {call.partition_id for call in cluster.calls() if call.stream == "special"}
        eventually(
            lambda: all(s.lag == 0 for s in cluster.consumer().shares if s.share.partition_id != part),
            "all other partitions flow",
        )
    else:
        cluster.drained()
        assert len(cluster.effects()) == 48 + done
    assert special() == done
    parked = cluster.app.consumers.sync.parked("billing")
    assert [event.stream for event in parked] == (["special"] * 3 if policy == "park" else [])


@pytest.mark.slow
def test_an_event_that_kills_its_node_is_parked_in_the_end_and_no_other(cluster):
    def start(name):
        cluster.start(name, recovery=2.0, STREAM_ON_ERROR="park")

    start("anna")
    cluster.settled("anna")
    cluster.append(20)
    cluster.append(1, stream="special", do="die")
    cluster.append(20)

    def restarted():
        if cluster.nodes["anna"].process.poll() is not None:
            start("anna")
        return cluster.consumer().lag == 0

    eventually(restarted, "everything else is done", within=60.0)
    cluster.append(40)  # in all partitions, the ones that lay idle beside it too
    cluster.drained()
    (parked,) = cluster.app.consumers.sync.parked("billing")
    assert parked.stream == "special"
    assert parked.failure.error_class == "NodeLost"
    assert len(cluster.effects()) == 80
