"""Nodes that come and go, one by one and all at once: bounded moves, and never a standstill."""

from __future__ import annotations

import signal
import time

import pytest
from tests.system.harness import eventually
from tests.system.stream_nodes import PARTITIONS, cluster_on

from holdfast.model.allocation import ShareState

NAMES = ("anna", "ben", "cleo")


@pytest.fixture
def cluster(store, tmp_path):
    with cluster_on(store, tmp_path) as cluster:
        yield cluster


def test_a_node_that_joins_moves_its_part_and_at_most_one_more(cluster):
    cluster.started("anna")
    cluster.append(100)
    for number, name in enumerate(NAMES[1:], start=2):
        before = cluster.grants()
        cluster.start(name)
        cluster.append(100)
        cluster.settled(*NAMES[:number])
        assert cluster.grants() - before <= PARTITIONS // number + 1
    cluster.drained()
    cluster.assert_once_in_order()
    assert revoking_at_once(cluster) <= PARTITIONS // 4
    assert len(cluster.calls()) == cluster.appended  # nothing was handled again


def revoking_at_once(cluster):
    """Return how many shares were under way at once, at most."""
    under_way, most = set(), 0
    for step in cluster.transitions():
        under_way.discard(step.share)
        if step.new_state is ShareState.REVOKING:
            under_way.add(step.share)
        most = max(most, len(under_way))
    return most


@pytest.mark.slow
def test_a_rolling_restart_of_all_nodes_loses_and_doubles_nothing(cluster):
    cluster.started(*NAMES)
    for name in NAMES:
        cluster.append(60)
        cluster.nodes[name].signal(signal.SIGTERM)
        assert cluster.nodes[name].end() == 0
        cluster.append(60)
        cluster.start(name)
    cluster.settled(*NAMES)
    cluster.drained()
    cluster.assert_once_in_order()


@pytest.mark.slow
def test_nodes_that_are_all_killed_and_started_again_at_once_have_what_they_had(cluster):
    cluster.started(*NAMES, recovery="default")
    before, grants = cluster.owners(), cluster.grants()
    cluster.append(200)
    for name in NAMES:
        cluster.nodes[name].process.kill()
    for name in NAMES:
        cluster.nodes[name].kill()
        cluster.start(name, recovery="default")
    eventually(lambda: cluster.owners() == before, "each has what it had")
    cluster.drained()
    cluster.assert_once_in_order()
    assert cluster.grants() - grants == PARTITIONS  # each share once


def test_hints_that_never_come_delay_events_and_change_nothing_else(cluster):
    cluster.started("anna", "ben", STREAM_DEAF="1")
    cluster.append(100)
    cluster.drained()
    cluster.nodes["anna"].signal(signal.SIGTERM)
    cluster.append(100)
    cluster.settled("ben")
    cluster.drained()
    cluster.assert_once_in_order()


@pytest.mark.slow
@pytest.mark.timeout(150)
def test_nodes_that_come_and_go_all_the_time_do_not_stop_progress(cluster):
    cluster.started("anna")
    deadline = time.monotonic() + 40.0
    done = turn = 0
    while time.monotonic() < deadline:
        cluster.append(50)
        name = ("ben", "cleo", "dora")[turn % 3]
        node = cluster.nodes.get(name)
        if node is None or node.process.poll() is not None:
            cluster.start(name)
        elif turn % 2:
            node.kill()
        else:
            node.signal(signal.SIGTERM)
        turn += 1
        time.sleep(0.5 + turn % 4 * 0.4)  # the rhythm of the fault
        if turn % 8 == 0:
            now_done = len(cluster.effects())
            assert now_done > done, "nothing was done in several seconds"
            done = now_done
    cluster.drained(within=60.0)
    cluster.assert_once_in_order()
    assert len(cluster.owners()) == PARTITIONS
