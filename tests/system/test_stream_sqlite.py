"""What befalls a database file under nodes: no space, and somebody who does not let go of it."""

from __future__ import annotations

import time

import pytest
from tests.system.stores import SqliteStore
from tests.system.stream_nodes import cluster_on
from tests.system.test_disk_full import Ballast, disk, run_in_namespace

from holdfast import StoreUnavailable

__all__ = ["disk"]


def append_all(cluster):
    """Append while the store takes it; the log may have some room of its own left."""
    for _ in range(1000):
        cluster.append(20, ballast="x" * 1000)


def test_nodes_on_a_full_disk_stop_say_so_and_go_on_when_there_is_space(request, disk, tmp_path):
    if disk is None:
        run_in_namespace(request)
        return
    ballast = Ballast(disk)
    with cluster_on(SqliteStore(disk / "ledger.db"), tmp_path) as cluster:
        cluster.started("anna", "ben")
        cluster.append(50)
        cluster.drained()
        ballast.take_all()
        with pytest.raises(StoreUnavailable, match="is full"):
            append_all(cluster)
        for node in cluster.nodes.values():
            node.line("cannot send its heartbeat: .* is full")
        ballast.free()
        cluster.append(50)
        cluster.settled("anna", "ben")
        cluster.drained()
        cluster.assert_once_in_order()


@pytest.mark.slow
def test_somebody_who_holds_the_write_lock_past_the_time_to_live_delays_the_nodes_and_nothing_else(tmp_path):
    store = SqliteStore(tmp_path / "ledger.db")
    with cluster_on(store, tmp_path) as cluster:
        anna, ben = cluster.started("anna", "ben", recovery=2.0)
        cluster.append(400)
        granted = cluster.grants()
        with store.locked():
            time.sleep(2.5)  # the length of the fault: half as long again as a node may be silent
            calls = len(cluster.calls())
            time.sleep(0.3)
            assert len(cluster.calls()) == calls
        cluster.drained()
        cluster.settled("anna", "ben")
        cluster.append(50)
        cluster.drained()
        cluster.assert_once_in_order()
        assert cluster.grants() == granted, "the share of a node that lives was taken or revoked"
        assert anna.process.poll() is ben.process.poll() is None
