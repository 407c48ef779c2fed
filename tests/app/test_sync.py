"""The blocking twins, called from ordinary code."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from holdfast import App, JobState, LeaseLost


@pytest.fixture(params=["file", "memory"])
def app(request, tmp_path: Path):
    app = App("sqlite://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db")
    yield app
    app.sync.close()
    app.portal.close()


@pytest.fixture
def add(app: App):
    @app.task(queue="sums")
    async def add(a: int, b: int = 1) -> int:
        return a + b

    return add


def test_the_life_of_a_job_without_a_coroutine(app, add):
    job = add.sync.enqueue(1, b=2)
    assert job.sync.state() is JobState.READY
    assert app.sync.drain("sums").completed == 1

    assert job.sync.wait(5) is JobState.COMPLETED
    assert job.sync.result(int) == 3
    assert app.job(job.id).sync.details().job.queue == "sums"


def test_options_many_and_names_have_twins(app, add):
    jobs = add.options(priority=3).sync.enqueue_many([{"a": n} for n in range(10)])
    by_name = app.sync.enqueue("add", a=5)

    assert len(jobs) == 10
    assert by_name.sync.cancel("no").value == "cancelled"
    assert len(app.jobs.sync.list("ready").jobs) == 10
    assert app.jobs.sync.show(jobs[0].id).job.priority == 3


def test_a_held_job_has_twins(app, add):
    add.sync.enqueue(a=1)
    (held,) = app.sync.claim("sums")

    held.sync.extend(60)
    assert held.sync.arguments() == ([], {"a": 1})
    assert len(app.sync.leases()) == 1
    held.sync.complete(9)
    assert app.job(held.id).sync.result() == 9
    with pytest.raises(LeaseLost):
        held.sync.release()


def test_queues_have_twins(app, add):
    assert app.queues.sync.pause("sums")
    add.sync.enqueue(a=1)
    assert app.sync.claim("sums") == []
    assert app.queues.sync.resume("sums")
    assert [queue.name for queue in app.queues.sync.list()] == ["sums"]
    assert app.sync.rescue() == []
    assert app.sync.workers() == []


def test_the_twin_of_options_given_before_or_after_is_the_same(app, add):
    before = add.options(delay=60).sync.enqueue(a=1)
    after = add.sync.options(delay=60).sync.enqueue(a=1)

    assert [job.sync.state() for job in (before, after)] == [JobState.SCHEDULED] * 2


def test_threads_may_share_an_app(app, add):
    errors: list[BaseException] = []

    def produce() -> None:
        try:
            for n in range(20):
                add.sync.enqueue(a=n)
        except BaseException as error:  # noqa: BLE001 - shown by the assertion below
            errors.append(error)

    threads = [threading.Thread(target=produce) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    assert app.sync.drain("sums").completed == 160


def test_an_error_is_raised_where_the_call_was_made(app, add):
    with pytest.raises(Exception, match="a: Expected `int`"):
        add.sync.enqueue(a="x")


def test_the_twin_offers_the_names_and_documentation_of_its_original(app, add):
    assert {"enqueue", "enqueue_many", "options", "name"} <= set(dir(add.sync))
    assert add.sync.enqueue.__doc__ == add.enqueue.__doc__
    with pytest.raises(AttributeError):
        add.sync.nothing  # noqa: B018
