"""A worker behind a network that breaks, goes silent, or cuts around a commit."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from tests.postgres.scene import Scene, scene_on
from tests.servers.missing import give_up
from tests.servers.postgres import NoServerError, server_url
from tests.system.harness import eventually

from holdfast.torture.proxy import Proxy, When
from holdfast.torture.wire import COMMIT

SOON = 15.0  # seconds: a silent line is given up after two here, then come back-offs of up to five
CLAIM = r"lanes as materialized"
COMPLETE = r"insert into [^ ]*completed"
SLOW = pytest.mark.slow


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    try:
        proxy = Proxy(server_url())
    except NoServerError as error:
        give_up("PostgreSQL", str(error))
    yield proxy
    proxy.close()


@pytest.fixture
def scene(proxy: Proxy) -> Iterator[Scene]:
    with scene_on(server_url(), proxy=proxy) as scene:
        yield scene


@pytest.mark.parametrize("fault", ["hole", *(pytest.param(f, marks=SLOW) for f in ("cut", "fin", "half", "refuse"))])
def test_a_worker_whose_links_all_fail_is_back_by_itself_when_the_network_is(scene: Scene, proxy: Proxy, fault: str):
    worker = scene.worker(lease=5.0)  # longer than it takes to notice
    scene.enqueue(100)
    scene.enqueue(20, "pay_in_thread")
    getattr(proxy, fault)()
    time.sleep(1.0)  # the length of the outage
    proxy.heal()
    assert scene.back(within=SOON) < SOON
    scene.once(worker)


def test_a_worker_ends_in_time_though_its_links_have_fallen_silent(scene: Scene, proxy: Proxy):
    worker = scene.worker()
    proxy.hole()
    worker.process.terminate()
    worker.end(within=20.0)


@SLOW
def test_a_slow_network_delays_jobs_and_does_nothing_else(scene: Scene, proxy: Proxy):
    worker = scene.worker(lease=5.0)
    proxy.delay = 0.02
    scene.enqueue(20)
    assert scene.back(within=SOON) < SOON
    scene.once(worker)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    "statement", [pytest.param(CLAIM, marks=SLOW), COMPLETE, COMMIT], ids=["claim", "complete", "commit"]
)
@pytest.mark.parametrize("task", ["pay", pytest.param("pay_in_thread", marks=SLOW)])
def test_a_cut_around_a_claim_a_completion_or_a_commit_loses_no_job_and_doubles_no_effect(
    scene: Scene, proxy: Proxy, task: str, statement: str, when: When
):
    worker = scene.worker()
    for number in range(1, 4):
        proxy.arm(when, statement)
        scene.enqueue(5, task)
        eventually(lambda: proxy.cuts == number, "the line was cut")  # noqa: B023
        scene.ledger.completed(*scene.jobs, within=SOON)
    scene.once(worker)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_cut_around_the_finish_of_a_job_without_a_transaction_is_repeated_and_written_once(
    scene: Scene, proxy: Proxy, when: When
):
    scene.worker()
    proxy.arm(when, COMPLETE)
    jobs = scene.ledger.enqueue_many("do_nothing", [{}] * 5)
    eventually(lambda: proxy.cuts == 1, "the line was cut")
    scene.ledger.completed(*jobs, within=SOON)
    assert [scene.ledger.show(job).job.attempt for job in jobs] == [1] * 5
    assert [scene.ledger.show(job).attempts for job in jobs] == [[]] * 5


@SLOW
def test_a_worker_under_load_whose_line_is_cut_around_commits_time_and_again_doubles_nothing(
    scene: Scene, proxy: Proxy
):
    worker = scene.worker()
    until = time.monotonic() + 12.0
    turn = 0
    while time.monotonic() < until:
        proxy.arm(("before", "after")[turn % 2], (COMMIT, COMPLETE, CLAIM)[turn % 3])
        scene.enqueue(10)
        scene.enqueue(5, "pay_in_thread")
        turn += 1
        time.sleep(0.25)  # the rhythm of the fault
    assert proxy.cuts >= 20
    proxy.heal()
    assert scene.back(within=SOON) < SOON
    scene.once(worker)
