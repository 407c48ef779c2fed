"""A worker whose server does it harm: one effect for each job, none lost, and the worker is back by itself."""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress

import psycopg
import pytest
from tests.postgres.scene import SESSIONS_OF_WORKERS, Scene, scene_on
from tests.servers.missing import give_up
from tests.servers.postgres import NoServerError, OwnServer, server_url
from tests.system.harness import eventually

SOON = 10.0  # seconds: measured below one on an idle machine, but for back-offs of up to five
TERMINATE = f"select pg_terminate_backend(pid, 5000) {SESSIONS_OF_WORKERS}"


@pytest.fixture
def scene():
    try:
        url = server_url()
    except NoServerError as error:
        give_up("PostgreSQL", str(error))
    with scene_on(url) as scene:
        yield scene


def test_each_session_of_a_worker_is_terminated_once_and_it_goes_on(scene: Scene):
    worker = scene.worker()
    scene.enqueue(50)
    pids = [row[0] for row in scene.execute(f"select pid {SESSIONS_OF_WORKERS}")]
    assert len(pids) >= 3  # one for verbs, one to extend, one to listen
    terminated = 0
    for pid in pids:
        scene.enqueue(10)
        scene.enqueue(10, "pay_in_thread")
        # False: the worker itself has dropped this one, as it does with idle sessions when another was broken.
        terminated += scene.execute(f"select pg_terminate_backend({pid}, 5000)") == [(True,)]
    assert terminated >= 1
    assert scene.back(within=SOON) < SOON
    scene.once(worker)


@pytest.mark.slow
def test_all_sessions_of_a_worker_are_terminated_twice_a_second_and_it_is_back_when_that_ends(scene: Scene):
    worker = scene.worker()
    terminated = 0
    began = time.monotonic()
    for number in range(20):
        scene.enqueue(20)
        scene.enqueue(5, "pay_in_thread")
        terminated += len(scene.execute(TERMINATE))
        time.sleep(max(0.0, began + 0.5 * (number + 1) - time.monotonic()))  # the rhythm of the fault
    assert terminated >= 20
    assert scene.back(within=SOON) < SOON
    scene.once(worker)


@pytest.mark.slow
def test_a_server_that_crashes_under_load_and_starts_again_finds_the_worker_at_work(roomy_server: OwnServer):
    with scene_on(roomy_server.url) as scene:
        worker = scene.worker()
        for _ in range(3):
            scene.enqueue(300)
            scene.enqueue(30, "pay_in_thread")
            done = scene.effects()
            eventually(lambda: scene.effects() > done, "the worker is in the midst of it")  # noqa: B023
            roomy_server.stop()
            time.sleep(1.0)  # the length of the outage
            roomy_server.start()
            assert scene.back(within=20.0) < 20.0
        scene.once(worker)


def test_a_server_that_takes_no_writes_for_a_while_finds_the_worker_at_work_when_it_does(roomy_server: OwnServer):
    with scene_on(roomy_server.url) as scene:
        worker = scene.worker()
        scene.enqueue(100)
        roomy_server.execute("alter system set default_transaction_read_only = on")
        roomy_server.execute("select pg_reload_conf()")
        worker.line("failed, retrying: .* (read-only|cannot be reached)")
        with psycopg.connect(
            roomy_server.url, autocommit=True, options="-c default_transaction_read_only=off"
        ) as owner:
            owner.execute("alter system reset default_transaction_read_only")
            owner.execute("select pg_reload_conf()")
        eventually(lambda: scene.execute("show default_transaction_read_only") == [("off",)], "it takes writes")
        assert scene.back(within=SOON) < SOON
        scene.once(worker)


@pytest.mark.slow
def test_time_limits_of_the_role_break_statements_off_and_nothing_else(roomy_server: OwnServer):
    roomy_server.execute("create role hasty login superuser")
    for name in ("statement_timeout", "idle_in_transaction_session_timeout", "lock_timeout"):
        roomy_server.execute(f"alter role hasty set {name} = '50ms'")
    with scene_on(roomy_server.url, user="hasty") as scene:
        worker = scene.worker()
        scene.enqueue(100)
        scene.enqueue(20, "pay_in_thread")
        with psycopg.connect(scene.plain_url) as blocker:
            blocker.execute("lock table holdfast.ready in access exclusive mode")
            worker.line("failed, retrying: .* cancelled the statement")
        assert scene.back(within=SOON) < SOON
        scene.once(worker)


def test_a_worker_that_finds_no_connection_free_goes_on_when_there_is_one(server: OwnServer):
    with scene_on(server.url) as scene:
        worker = scene.worker(concurrency=2)
        with ExitStack() as crowd:
            watcher = crowd.enter_context(psycopg.connect(scene.plain_url, autocommit=True, application_name="test"))
            scene.enqueue(50)
            _take_all(crowd, server.url)
            while not _is_crowded_out(watcher):  # who is thrown out comes back at once, and may come before the crowd
                watcher.execute(TERMINATE.encode())
                _take_all(crowd, server.url)
            worker.line("failed, retrying: .* (too many|remaining connection slots)")
        assert scene.back(within=SOON) < SOON
        scene.once(worker)


def _take_all(crowd: ExitStack, url: str) -> None:
    """Take every connection that the server still has."""
    with suppress(psycopg.OperationalError):
        while True:
            crowd.enter_context(psycopg.connect(url))


def _is_crowded_out(watcher: psycopg.Connection[tuple[object, ...]]) -> bool:
    """Whether every place is taken, none by the worker; one that is about to log in has a place before it is shown."""
    [row] = watcher.execute(
        "select count(*) = current_setting('max_connections')::int and bool_and(application_name <> 'worker')"
        " from pg_stat_activity where backend_type = 'client backend'"
    )
    return row == (True,)
