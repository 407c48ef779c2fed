"""Nodes that are killed, frozen, stopped and replaced: every event takes effect once, in order."""

from __future__ import annotations

import os
import signal
import time

import psutil
import pytest
from tests.system.harness import BUSY, eventually
from tests.system.stream_nodes import PARTITIONS, cluster_on


@pytest.fixture
def cluster(store, tmp_path):
    with cluster_on(store, tmp_path) as cluster:
        yield cluster


def test_a_killed_node_is_replaced_and_its_open_transaction_leaves_nothing(cluster, gate):
    """The handler is killed in the middle; the event runs again elsewhere, and takes effect once."""
    barrier = gate("killed")
    cluster.started("anna", "ben")
    cluster.append(100)
    cluster.append(1, stream="special", do="gate", gate=barrier.path)
    victim = cluster.handler_of("special")
    cluster.nodes[victim].kill()
    killed = time.monotonic()
    (left,) = set(cluster.nodes) - {victim}
    cluster.taken_over_by(left)
    assert time.monotonic() - killed < 3.0 + BUSY
    cluster.handler_of("special", beside=victim)
    barrier.open()
    cluster.drained()
    cluster.assert_once_in_order()


@pytest.mark.slow
@pytest.mark.parametrize(("recovery", "seconds"), [("default", 15.0), ("2", 2.0)])
def test_the_partitions_of_a_killed_node_are_consumed_by_others_within_the_time_promised(cluster, recovery, seconds):
    cluster.started("anna", "ben", recovery=recovery)
    partition_id = next(part for part, owner in cluster.owners().items() if owner == "anna")
    cluster.append(200)  # all partitions are in use
    cluster.drained()
    cluster.nodes["anna"].kill()
    killed = time.monotonic()
    cluster.append(100)

    def is_consumed():
        return cluster.consumer().shares[partition_id].lag == 0

    eventually(is_consumed, "another node has consumed it", within=40.0)
    assert time.monotonic() - killed < seconds + BUSY
    cluster.drained()
    cluster.assert_once_in_order()


@pytest.mark.slow
def test_a_node_that_was_frozen_past_its_ttl_writes_nothing_under_its_old_grant(cluster, gate):
    barrier = gate("frozen")
    cluster.started("anna", "ben", STREAM_HANDLER="thread")
    cluster.append(1, stream="special", do="gate", gate=barrier.path)
    frozen = cluster.handler_of("special")
    barrier.reached()
    cluster.nodes[frozen].signal(signal.SIGSTOP)
    other = cluster.handler_of("special", beside=frozen)  # past the time to live: it was given to the other one
    barrier.keep_open(cluster.effects, "the other one has handled it")
    cluster.nodes[frozen].signal(signal.SIGCONT)
    cluster.append(50)
    cluster.settled("anna", "ben")
    cluster.drained()
    cluster.assert_once_in_order(overlap_allowed=True)
    assert {effect.node for effect in cluster.effects() if effect.stream == "special"} == {other}
    assert len([call for call in cluster.calls() if call.stream == "special" and call.ended]) == 2


def test_a_stopped_node_hands_over_within_two_seconds_and_nothing_is_handled_again(cluster):
    anna, _ = cluster.started("anna", "ben", recovery=8.0)
    cluster.append(200)
    asked = time.monotonic()
    anna.signal(signal.SIGTERM)
    cluster.taken_over_by("ben")
    assert time.monotonic() - asked < 2.0 + BUSY
    assert anna.end() == 0, anna.text
    cluster.drained()
    cluster.assert_once_in_order()
    assert len(cluster.calls()) == 200


def test_a_killed_leader_is_followed_by_another_and_nothing_stops_meanwhile(cluster):
    cluster.started("anna", "ben", "cleo")
    leader, epoch = cluster.leader()
    others = [part for part, owner in cluster.owners().items() if owner != leader]
    cluster.append(100)
    cluster.drained()
    cluster.nodes[leader].kill()
    killed = time.monotonic()
    cluster.append(100)

    def are_consumed():
        return all(cluster.consumer().shares[part].lag == 0 for part in others)

    eventually(are_consumed, "those that live consume on")
    eventually(lambda: cluster.leader()[1] > epoch, "another node leads")
    assert time.monotonic() - killed < 6.0 * 3 / 15 + 1.0 + BUSY  # its lease, and a pass
    cluster.drained()
    cluster.assert_once_in_order()


@pytest.mark.slow
def test_a_leader_that_was_frozen_past_its_lease_changes_nothing_and_steps_down(cluster):
    cluster.started("anna", "ben", "cleo")
    leader, epoch = cluster.leader()
    cluster.nodes[leader].signal(signal.SIGSTOP)
    eventually(lambda: cluster.leader()[1] > epoch, "another node leads")
    others = sorted(set(cluster.nodes) - {leader})
    cluster.settled(*others)
    cluster.nodes[leader].signal(signal.SIGCONT)
    cluster.append(100)
    cluster.settled(*cluster.nodes)
    cluster.drained()
    cluster.assert_once_in_order()  # epochs in the record of steps never fall
    assert cluster.leader()[0] != leader


@pytest.mark.slow
def test_a_leader_that_is_frozen_between_its_look_at_the_epoch_and_its_commit_does_not_double_a_step(cluster, tmp_path):
    mark = tmp_path / "stopped"
    cluster.append(50)
    for name in ("anna", "ben"):
        cluster.start(name, STREAM_STOP_IN_ALLOT=str(mark))
    eventually(mark.exists, "a leader was stopped in the midst of its moves")
    frozen = eventually(lambda: next((n for n in cluster.nodes.values() if is_stopped(n)), None), "it stands still")
    if not cluster.store.one_writer:
        (other,) = {name for name, node in cluster.nodes.items() if node is not frozen}
        eventually(lambda: cluster.app.sync.leader().leadership.node.node_id == other, "another leads")
        cluster.settled(other)
    frozen.signal(signal.SIGCONT)
    cluster.settled("anna", "ben")
    cluster.drained()
    cluster.assert_once_in_order()


def is_stopped(node):
    return psutil.Process(node.pid).status() == psutil.STATUS_STOPPED


def test_a_second_process_under_the_same_node_id_takes_over_and_the_first_one_ends(cluster):
    (first,) = cluster.started("anna")
    cluster.append(50)
    cluster.drained()
    second = cluster.start("anna")
    assert first.end() == 78, first.text
    assert "another process" in first.text
    assert "Traceback" not in first.text
    cluster.append(50)
    cluster.drained()
    cluster.assert_once_in_order()
    assert second.process.poll() is None


@pytest.mark.slow
def test_a_node_that_comes_back_soon_gets_its_partitions_back(cluster):
    cluster.started("anna", "ben", recovery="default")
    before = cluster.owners()
    grants = cluster.grants()
    cluster.nodes["anna"].kill()
    cluster.start("anna", recovery="default")
    cluster.append(100)
    cluster.drained()
    cluster.assert_once_in_order()
    eventually(lambda: cluster.owners() == before, "each has what it had")
    assert cluster.grants() - grants == PARTITIONS // 2  # no other was moved


@pytest.mark.slow
def test_a_reset_under_load_and_beside_a_frozen_node_refuses_old_generations(cluster):
    cluster.started("anna", "ben")
    cluster.append(100)
    cluster.nodes["ben"].signal(signal.SIGSTOP)
    cluster.app.consumers.sync.reset("billing", "beginning")
    cluster.nodes["ben"].signal(signal.SIGCONT)
    cluster.append(100)
    cluster.settled("anna", "ben")
    cluster.drained()
    effects = cluster.effects()
    seen: dict[tuple[int, int], int] = {}
    for effect in effects:
        seen[effect.partition_id, effect.position] = seen.get((effect.partition_id, effect.position), 0) + 1
    assert set(seen.values()) <= {1, 2}  # once before the reset, once after it, never twice by one generation
    assert len({(e.partition_id, e.position, e.fence) for e in effects}) == len(effects)
    assert len(seen) == 200


@pytest.mark.parametrize(
    "leads", [pytest.param(True, id="the leader"), pytest.param(False, id="another", marks=pytest.mark.slow)]
)
def test_the_partitions_of_a_killed_process_of_a_supervised_program_are_freed_at_once(cluster, leads):
    """By silence alone it would take 12 s, and for a leader 6 s more. The leader's next pass gives them to others."""
    supervisor = cluster.start("anna", recovery="default", STREAM_PROCESSES="2")

    def ready() -> bool:
        owners = [share.owner for view in cluster.app.consumers.sync.list() for share in view.shares]
        return None not in owners and len(set(owners)) == 2

    eventually(ready, "two nodes share the partitions", within=40.0)
    leader, _ = cluster.leader()
    (victim,) = [view for view in cluster.app.sync.nodes() if (view.node.node_id == leader) is leads]
    lost = {share for share, owner in cluster.owners().items() if owner == victim.node.node_id}
    os.kill(victim.pid, signal.SIGKILL)
    killed = time.monotonic()

    def owners_of_lost() -> set[str | None]:
        owners = cluster.owners()
        return {owners[share] for share in lost}

    eventually(lambda: victim.node.node_id not in owners_of_lost(), "the partitions are no longer the dead node's")
    freed = time.monotonic() - killed
    eventually(lambda: not owners_of_lost() & {None, victim.node.node_id}, "they are owned by others")
    owned = time.monotonic() - killed
    assert freed < 1.0  # 0.02 to 0.45 s on two cores with a load of 25
    assert owned < 2.0  # 0.03 to 1.05 s
    assert {share.losses for share in cluster.consumer().shares if share.share.partition_id in lost} == {1}
    cluster.append(48)
    cluster.drained()
    cluster.assert_once_in_order()
    supervisor.signal(signal.SIGTERM)
    assert supervisor.end(within=30.0) == 0, supervisor.text
