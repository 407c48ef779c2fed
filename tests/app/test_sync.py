"""The blocking twins, called from ordinary code."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast import App, ConfigError, JobState, LeaseLost
from holdfast.app.sync import Blocking, Portal, Sync


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


def holdfast_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("holdfast")}


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
    app.sync.opened()
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


def test_the_objects_of_an_app_are_blocking_under_its_sync_too(app, add):
    job = add.sync.enqueue(a=1)

    assert [found.id for found in app.sync.jobs.list("ready").jobs] == [job.id]
    assert app.sync.queues.pause("sums")
    assert app.sync.queues.sync.resume("sums")
    assert app.sync.consumers.list() == []
    assert app.sync.job(job.id).state() is JobState.READY
    assert app.sync.job(job.id).sync.cancel().value == "cancelled"
    assert add.sync.options(delay=60).enqueue(a=1).sync.state() is JobState.SCHEDULED


def test_an_app_is_opened_and_closed_by_a_with_block(tmp_path: Path):
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    before = holdfast_threads()

    with app.sync as blocking:
        assert blocking.leases() == []
        assert blocking.sync.workers() == []

    assert holdfast_threads() <= before


def claimed(app: App, add, count: int):
    add.sync.enqueue_many([{"a": n} for n in range(count)])
    return app.sync.claim("sums", count)


def effects(app: App, add) -> int:
    (job,) = claimed(app, add, 1)
    with app.sync.batch([job]) as batch:
        (found,) = batch.connection.execute("select count(*) from effect").fetchone()
        batch.complete(job)
    return int(found)


@pytest.fixture
def ledger(app: App, add):
    (job,) = claimed(app, add, 1)
    with app.sync.batch([job]) as batch:
        batch.connection.execute("create table effect (job_id text)")
        batch.complete(job)


def test_a_batch_commits_effects_and_ends_together(app, add, ledger):
    jobs = claimed(app, add, 3)

    with app.sync.batch(jobs) as batch:
        for job in batch.held:
            batch.connection.execute("insert into effect values (?)", (job.id,))
            batch.complete(job, 7)

    assert [app.job(job.id).sync.result() for job in jobs] == [7, 7, 7]
    assert effects(app, add) == 3


def test_a_batch_that_raises_leaves_nothing_and_what_was_enqueued_in_it_is_gone(app, add, ledger):
    jobs = claimed(app, add, 2)

    with pytest.raises(ValueError, match="half-way"), app.sync.batch(jobs) as batch:  # noqa: PT012 - the whole block
        batch.connection.execute("insert into effect values ('x')")
        batch.complete(jobs[0])
        add.sync.enqueue(a=9)
        raise ValueError("half-way")

    assert [app.job(job.id).sync.state() for job in jobs] == [JobState.RUNNING] * 2
    assert app.sync.jobs.list("ready").jobs == []
    assert effects(app, add) == 0


def test_a_batch_sorts_the_jobs_that_were_taken_away(app, add, ledger):
    jobs = claimed(app, add, 3)
    app.sync.jobs.reset(jobs[0].id)
    app.sync.jobs.reset(jobs[2].id)

    with app.sync.batch(jobs) as batch:
        assert [job.id for job in batch.held] == [jobs[1].id]
        assert [job.id for job in batch.lost] == [jobs[0].id, jobs[2].id]
        batch.complete(jobs[1])

    with pytest.raises(LeaseLost, match="none of the 2 jobs"), app.sync.batch([jobs[0], jobs[2]]):
        pytest.fail("the block must not be entered")


def test_a_held_job_has_a_context_for_blocking_code(app, add):
    (held,) = claimed(app, add, 1)

    ctx = held.sync.context()
    ctx.sync.progress(50, "half-way")
    ctx.result = 5
    with ctx.sync.transaction() as connection:
        connection.execute("create table effect (job_id text)")

    assert app.job(held.id).sync.result() == 5


def test_what_blocking_code_cannot_run_is_refused_with_the_remedy(app, add):
    @app.consumer("billing", category="orders")
    async def bill(event: object) -> None: ...

    with pytest.raises(ConfigError, match=r"app\.run_worker\(…\).*app\.sync\.drain\(queue\)"):
        app.sync.worker()
    with pytest.raises(ConfigError, match=r"app\.run_worker\(…\)"):
        app.sync.node()


def test_no_coroutine_is_ever_handed_out():
    class Target:
        def later(self):
            return self.now()

        async def now(self) -> int:
            return 1

        @asynccontextmanager
        async def held(self):
            yield 1

        async def each(self):
            yield 1

    class SyncTarget(Sync[Target]):
        now = Blocking(Target.now)

    portal = Portal()
    blocking = SyncTarget(Target(), portal)

    assert blocking.now() == 1
    for name in ("later", "held", "each"):
        with pytest.raises(
            ConfigError, match=f"{name} has no blocking counterpart: call it in async code, without `.sync`"
        ):
            getattr(blocking, name)()
    portal.close()


def test_close_ends_the_thread_of_the_blocking_calls_until_the_next_one(tmp_path: Path):
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    before = holdfast_threads()

    for _ in range(2):
        app.sync.opened()
        assert app.sync.leases() == []
        assert not holdfast_threads() <= before
        app.sync.close()
        assert holdfast_threads() <= before
    app.sync.close()


def test_jobs_are_enqueued_after_a_close_as_before_it(app, add):
    with app.sync:
        add.sync.enqueue(a=1)
    with app.sync:
        assert add.sync.enqueue(a=2).created
        assert app.sync.drain("sums").completed in {1, 2}  # what was in memory is gone with the first close


def test_close_does_not_end_the_calls_of_other_threads(app, add):
    job = add.sync.enqueue(a=1)
    states: list[JobState] = []
    waiting = threading.Thread(target=lambda: states.append(app.portal.call(patient())))
    begun, go_on = threading.Event(), threading.Event()

    async def patient() -> JobState:
        begun.set()
        await asyncio.to_thread(go_on.wait)
        return JobState.COMPLETED

    waiting.start()
    begun.wait()
    app.portal.close()
    go_on.set()
    waiting.join()

    assert states == [JobState.COMPLETED]
    assert job.created


def test_many_threads_may_call_and_close_at_once(app, add):
    errors: list[BaseException] = []

    def churn() -> None:
        try:
            for _ in range(20):
                app.portal.call(asyncio.sleep(0))
                app.portal.close()
        except BaseException as error:  # noqa: BLE001 - shown by the assertion below
            errors.append(error)

    threads = [threading.Thread(target=churn) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
