"""Nodes whose server, or the way to it, does them harm: one effect for each event, in order, and no overlap."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from tests.postgres.scene import SESSIONS_OF_WORKERS, with_settings
from tests.servers.missing import give_up
from tests.servers.postgres import NoServerError, OwnServer, server_url
from tests.system.harness import Gate, eventually
from tests.system.stores import PostgresStore
from tests.system.stream_nodes import Cluster, cluster_on

from holdfast.torture.proxy import Proxy, When
from holdfast.torture.wire import COMMIT

SLOW = pytest.mark.slow
TERMINATE = f"select pg_terminate_backend(pid, 5000) {SESSIONS_OF_WORKERS}"
POSITION = r"set position_id ="
LATER = 40.0  # seconds: a silent line is given up after two here, then come waits of up to two, on a busy machine


@pytest.fixture
def url() -> str:
    try:
        return server_url()
    except NoServerError as error:
        give_up("PostgreSQL", str(error))


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    proxy = Proxy(url)
    yield proxy
    proxy.close()


@contextmanager
def nodes_on(server: str, folder: Path) -> Iterator[Cluster]:
    store = PostgresStore(server)
    try:
        with cluster_on(store, folder) as cluster:
            yield cluster
    finally:
        store.close()


@pytest.fixture
def cluster(url: str, proxy: Proxy, tmp_path: Path) -> Iterator[Cluster]:
    """Asks for the proxy so that it outlives the nodes, whose links it would leave open."""
    with nodes_on(url, tmp_path) as cluster:
        yield cluster


def way(cluster: Cluster, proxy: Proxy | None = None) -> str:
    """Return the URL of the cluster's store for a node that gives a silent line up soon, through a proxy or past it."""
    parts = urlsplit(cluster.store.url)
    if proxy is not None:
        parts = parts._replace(netloc=urlsplit(proxy.url).netloc)
    return with_settings(urlunsplit(parts), application_name="worker", reply_timeout="2")


def stream_of(cluster: Cluster, owner: str) -> str:
    """Return a stream whose partition this node has."""
    cluster.append(48)
    cluster.drained()
    owners = cluster.owners()
    return next(effect.stream for effect in cluster.effects() if owners[effect.partition_id] == owner)


def assert_untouched(cluster: Cluster) -> None:
    """All nodes are the processes that they were."""
    assert [name for name, node in cluster.nodes.items() if node.process.poll() is not None] == []


@pytest.mark.parametrize("fault", [pytest.param("hole", marks=SLOW), pytest.param("refuse", marks=SLOW)])
def test_a_node_that_is_cut_off_breaks_off_what_it_handles_before_another_begins_it(
    cluster: Cluster, proxy: Proxy, tmp_path: Path, fault: str
):
    barrier = Gate(tmp_path / "gate")
    cluster.start("anna", url=way(cluster, proxy))
    cluster.start("ben", url=way(cluster))
    cluster.settled("anna", "ben")
    stream = stream_of(cluster, "anna")
    cluster.append(1, stream=stream, do="gate", gate=barrier.path)
    assert cluster.handler_of(stream) == "anna"
    getattr(proxy, fault)()
    cluster.append(50)
    assert cluster.handler_of(stream, beside="anna", within=LATER) == "ben"
    # Ben is at the gate, or about to be; what is left of anna's call is there in any case.
    barrier.keep_open(cluster.is_drained, "every event is done", within=LATER)
    proxy.heal()
    cluster.settled("anna", "ben", within=LATER)
    cluster.append(50)
    cluster.drained(within=LATER)
    cluster.assert_once_in_order()  # no call of the one beside a call of the other
    assert_untouched(cluster)


@SLOW
@pytest.mark.parametrize("fault", ["half", "delay", "cut"])
def test_a_node_whose_line_is_half_open_slow_or_broken_is_back_by_itself(cluster: Cluster, proxy: Proxy, fault: str):
    cluster.start("anna", url=way(cluster, proxy))
    cluster.start("ben", url=way(cluster))
    cluster.settled("anna", "ben")
    cluster.append(100)
    if fault == "delay":
        proxy.delay = 1.0  # a report takes longer than the time for which it vouches
        cluster.taken_over_by("ben", within=LATER)
    else:
        getattr(proxy, fault)()
    cluster.append(100)
    cluster.drained(within=LATER)
    proxy.heal()
    cluster.settled("anna", "ben", within=LATER)
    cluster.append(100)
    cluster.drained(within=LATER)
    cluster.assert_once_in_order()
    assert_untouched(cluster)


@SLOW
def test_when_all_nodes_are_cut_off_nobody_leads_nobody_dispatches_and_all_go_on_afterwards(
    cluster: Cluster, proxy: Proxy
):
    for name in ("anna", "ben"):
        cluster.start(name, url=way(cluster, proxy))
    cluster.settled("anna", "ben")
    cluster.append(50)
    cluster.drained()
    _, epoch = cluster.leader()
    proxy.hole()
    for node in cluster.nodes.values():
        node.line("cannot send its heartbeat", within=LATER)  # after longer than it may dispatch
    calls = len(cluster.calls())
    cluster.append(50)
    time.sleep(1.0)  # in which a node would have taken them
    assert len(cluster.calls()) == calls
    view = cluster.app.sync.leader()
    assert view is not None
    assert view.leadership.epoch == epoch
    assert view.expires_in.total_seconds() < 0
    proxy.heal()
    cluster.drained(within=LATER)
    cluster.settled("anna", "ben", within=LATER)
    cluster.assert_once_in_order()
    assert_untouched(cluster)


@SLOW
def test_a_node_ends_in_time_though_its_links_have_fallen_silent(cluster: Cluster, proxy: Proxy):
    anna = cluster.start("anna", url=way(cluster, proxy))
    cluster.settled("anna")
    proxy.hole()
    anna.process.terminate()
    anna.end(within=25.0)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("statement", [COMMIT, pytest.param(POSITION, marks=SLOW)], ids=["commit", "position"])
@pytest.mark.parametrize("handler", ["async", pytest.param("thread", marks=SLOW)])
def test_a_line_that_is_cut_around_a_commit_doubles_and_skips_nothing(
    cluster: Cluster, proxy: Proxy, when: When, statement: str, handler: str
):
    cluster.start("anna", url=way(cluster, proxy), STREAM_HANDLER=handler)
    cluster.settled("anna")
    for number in range(1, 5):
        proxy.arm(when, statement)
        cluster.append(10)
        eventually(lambda: proxy.cuts == number, "the line was cut")  # noqa: B023
        cluster.drained(within=LATER)
    cluster.assert_once_in_order()
    assert_untouched(cluster)


@SLOW
def test_all_sessions_of_all_nodes_are_terminated_time_and_again_and_they_go_on(cluster: Cluster):
    for name in ("anna", "ben"):
        cluster.start(name, url=way(cluster))
    cluster.settled("anna", "ben")
    terminated = 0
    for _ in range(4):
        cluster.append(50)
        terminated += len(cluster.execute(TERMINATE))
        time.sleep(0.3)  # the rhythm of the fault
    assert terminated >= 8
    cluster.drained(within=LATER)
    cluster.settled("anna", "ben", within=LATER)
    cluster.assert_once_in_order()
    assert_untouched(cluster)


@SLOW
def test_a_server_that_crashes_and_starts_again_finds_the_nodes_at_work(roomy_server: OwnServer, tmp_path: Path):
    with nodes_on(roomy_server.url, tmp_path) as cluster:
        for name in ("anna", "ben"):
            cluster.start(name, url=way(cluster))
        cluster.settled("anna", "ben")
        for _ in range(2):
            cluster.append(300)
            done = len(cluster.effects())
            eventually(lambda: len(cluster.effects()) > done, "they are in the midst of it")  # noqa: B023
            roomy_server.stop()
            time.sleep(1.0)  # the length of the outage
            roomy_server.start()
            cluster.drained(within=LATER)
        cluster.settled("anna", "ben", within=LATER)
        cluster.assert_once_in_order()
        assert_untouched(cluster)


@SLOW
def test_a_server_that_takes_no_writes_for_a_while_finds_the_nodes_at_work_when_it_does(
    roomy_server: OwnServer, tmp_path: Path
):
    with nodes_on(roomy_server.url, tmp_path) as cluster:
        for name in ("anna", "ben"):
            cluster.start(name, url=way(cluster))
        cluster.settled("anna", "ben")
        cluster.append(200)
        roomy_server.execute("alter system set default_transaction_read_only = on")
        roomy_server.execute("select pg_reload_conf()")
        for node in cluster.nodes.values():
            node.line("cannot send its heartbeat")
        with psycopg.connect(
            roomy_server.url, autocommit=True, options="-c default_transaction_read_only=off"
        ) as owner:
            owner.execute("alter system reset default_transaction_read_only")
            owner.execute("select pg_reload_conf()")
        cluster.drained(within=LATER)
        cluster.settled("anna", "ben", within=LATER)
        cluster.append(50)
        cluster.drained(within=LATER)
        cluster.assert_once_in_order()
        assert_untouched(cluster)
