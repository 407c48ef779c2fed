"""Workers and nodes that are really stopped, inside a transaction: others take over, and nothing is doubled.

Every way in which a client can stand still is in `test_frozen_clients.py`; here are whole processes.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.postgres.scene import Scene, scene_on, with_settings
from tests.servers.missing import give_up
from tests.servers.pgbouncer import pooled
from tests.servers.postgres import NoServerError, server_url
from tests.system.apps.standing import WAYS
from tests.system.harness import Program, eventually
from tests.system.stores import PostgresStore
from tests.system.stream_nodes import Cluster, cluster_on

pytestmark = pytest.mark.slow
LEASE = 2.0
RECOVERY = 2.0
SOON = 20.0
STANDING = {"pipeline": ("active",), "copy": ("active",), "half_sent": ("idle in transaction",)}
WHERE = (
    "from pg_stat_activity where application_name = 'worker' and datname = current_database() and xact_start < now()"
)


@pytest.fixture
def url() -> str:
    try:
        return server_url()
    except NoServerError as error:
        give_up("PostgreSQL", str(error))


@pytest.fixture
def scene(url: str) -> Iterator[Scene]:
    with scene_on(url) as scene:
        yield scene


def _stopped(mark: Path, *programs: Program) -> Program:
    """Wait until one of the processes has stopped itself, and return it."""
    eventually(mark.exists, "a process was stopped")
    return eventually(lambda: next((each for each in programs if _is_stopped(each)), None), "one process stands still")


def _is_stopped(program: Program) -> bool:
    status = Path(f"/proc/{program.pid}/stat").read_text()
    return status.rpartition(")")[2].split()[0] == "T"


def _goes_on(scene: Scene, stopped: Program, others: list[Program]) -> None:
    """The one that was stopped goes on, works again, and nothing was done twice."""
    stopped.signal(signal.SIGCONT)
    scene.enqueue(20)
    scene.ledger.completed(*scene.jobs, within=SOON)
    for program in (stopped, *others):
        program.signal(signal.SIGTERM)
        assert program.end() == 0, program.text
    scene.ledger.assert_once(scene.jobs)


@pytest.mark.parametrize("how", WAYS)
def test_the_job_of_a_worker_that_is_stopped_inside_its_transaction_is_done_by_another(
    scene: Scene, tmp_path: Path, how: str
):
    scene.enqueue(1)
    workers = [scene.workers.started(lease=LEASE) for _ in range(2)]
    mark = tmp_path / "mark"
    scene.jobs.append(scene.ledger.enqueue("pay_and_stop", how=how, mark=str(mark)))
    stopped = _stopped(mark, *workers)
    began = time.monotonic()
    if how in STANDING:
        assert STANDING[how] in scene.execute(f"select state {WHERE}")
    (other,) = [each for each in workers if each is not stopped]
    other.line(r"1 job of worker .* is ready again", within=SOON)
    assert time.monotonic() - began < 2 * LEASE
    scene.ledger.completed(scene.jobs[-1], within=SOON)  # in a child process of its own, which takes a while
    _goes_on(scene, stopped, [other])


@pytest.mark.parametrize("how", WAYS)
def test_the_job_of_a_worker_that_is_stopped_inside_the_handlers_own_transaction_is_done_by_another(
    scene: Scene, tmp_path: Path, how: str
):
    scene.enqueue(1)
    workers = [scene.workers.started(lease=LEASE) for _ in range(2)]
    mark = tmp_path / "mark"
    scene.jobs.append(scene.ledger.enqueue("pay_in_own_transaction_and_stop", how=how, mark=str(mark)))
    stopped = _stopped(mark, *workers)
    scene.ledger.completed(scene.jobs[-1], within=SOON)
    _goes_on(scene, stopped, [each for each in workers if each is not stopped])


@pytest.mark.parametrize("how", WAYS)
def test_a_job_is_done_by_another_worker_also_through_a_transaction_pooler(scene: Scene, tmp_path: Path, how: str):
    scene.enqueue(1)
    try:
        with pooled(scene.plain_url, tmp_path) as through:
            way = with_settings(through, application_name="worker", reply_timeout="2")
            settings = '{"lease": 2.0, "poll_interval": 0.1}'
            programs = [
                scene.workers.program("tests.system.apps.worker_program", settings, HOLDFAST_URL=way) for _ in range(2)
            ]
            for program in programs:
                program.line("worker .* is running on")
            mark = tmp_path / "mark"
            scene.jobs.append(scene.ledger.enqueue("pay_and_stop", how=how, mark=str(mark)))
            stopped = _stopped(mark, *programs)
            scene.ledger.completed(scene.jobs[-1], within=SOON)
            _goes_on(scene, stopped, [each for each in programs if each is not stopped])
    except NoServerError as error:
        give_up("PgBouncer", str(error))


@pytest.fixture
def cluster(url: str, tmp_path: Path) -> Iterator[Cluster]:
    store = PostgresStore(url)
    try:
        with cluster_on(store, tmp_path) as cluster:
            yield cluster
    finally:
        store.close()


@pytest.mark.parametrize("how", WAYS)
def test_the_shares_of_a_node_that_is_stopped_inside_its_transaction_are_consumed_by_another(
    cluster: Cluster, tmp_path: Path, how: str
):
    _shares_are_taken_over(cluster, tmp_path / "mark", how)


@pytest.mark.parametrize("how", ["pipeline", "half_sent"])
def test_shares_are_consumed_by_another_node_also_through_a_transaction_pooler(
    cluster: Cluster, tmp_path: Path, how: str
):
    try:
        with pooled(cluster.store.url, tmp_path) as through:
            _shares_are_taken_over(cluster, tmp_path / "mark", how, url=through)
    except NoServerError as error:
        give_up("PgBouncer", str(error))


def _shares_are_taken_over(cluster: Cluster, mark: Path, how: str, *, url: str | None = None) -> None:
    nodes = cluster.started("anna", "ben", recovery=RECOVERY, url=url)
    cluster.append(100)
    cluster.drained()
    cluster.append(1, stop=how, mark=str(mark))
    stopped = _stopped(mark, *nodes)
    (other,) = [name for name, node in cluster.nodes.items() if node is not stopped]
    began = time.monotonic()
    cluster.append(100)
    cluster.taken_over_by(other, within=SOON)
    cluster.drained(within=SOON)
    assert time.monotonic() - began < 4 * RECOVERY
    stopped.signal(signal.SIGCONT)
    cluster.settled("anna", "ben", within=SOON)
    cluster.append(100)
    cluster.drained()
    cluster.assert_once_in_order(overlap_allowed=True)
