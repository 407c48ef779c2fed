"""What `app.on` reports, on each store: which hooks, in which order, and with which values."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from functools import partial

import pytest
from tests.app.capability import needs
from tests.app.stream_work import QUICK as TIMING
from tests.app.stream_work import append, drained, eventually, running
from tests.app.work import LIMIT, run_all

from holdfast import App, BatchContext, Call, Cancel, Context, Event, Retry, Snooze, StoreUnavailable
from holdfast.hooks import HandlingEnd, HandlingStart, JobEnd, JobEnqueue, JobStart, PartitionMove
from holdfast.store.values import ClaimRequest
from holdfast.worker.attempt_reports import AttemptReports


class Record:
    """Everything that the hooks of an app report about jobs, in order."""

    def __init__(self, app: App) -> None:
        self.names: list[str] = []
        self.ends: list[JobEnd] = []
        for name in ("job.enqueue", "job.start", "job.end", "job.retry", "job.fail"):
            app.hooks.named(name)(partial(self._note, name))

    def _note(self, name: str, value: object) -> None:
        self.names.append(name)
        if name == "job.end":
            assert isinstance(value, JobEnd)
            self.ends.append(value)


async def test_the_hooks_of_a_job_that_fails_once_are_called_in_order(on_each_store: App):
    app = on_each_store

    @app.task(retry=0.01)
    async def charge(ctx: Context, order_id: int) -> str:
        if ctx.job.attempt == 1:
            raise LookupError("there is no order 7")
        return "charged"

    record = Record(app)
    job = await charge.enqueue(7)
    await run_all(app, worker_id="w")

    assert record.names == [
        "job.enqueue", "job.start", "job.end", "job.retry", "job.start", "job.end"
    ]  # fmt: skip
    first, second = record.ends
    assert (first.outcome, second.outcome) == ("retried", "completed")
    assert isinstance(first.error, LookupError)
    assert first.failure is not None
    assert first.failure.message == "there is no order 7"
    assert first.failure.location.startswith("tests/app/test_hooks.py:")
    assert first.delay == timedelta(seconds=0.01)
    assert not first.is_asked
    assert first.job.id == job.id
    assert first.worker_id.startswith("w")
    assert timedelta(0) < first.duration < timedelta(seconds=LIMIT)
    assert (second.error, second.failure, second.delay) == (None, None, None)


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize(
    ("ending", "outcome", "special"),
    [
        (None, "completed", None),
        (ValueError("no"), "failed", "job.fail"),
        (SystemExit(3), "failed", "job.fail"),
        (Cancel("enough"), "cancelled", None),
    ],
)
async def test_each_end_has_its_word(app: App, ending, outcome, special, is_async):
    def end() -> None:
        if ending is not None:
            raise ending

    async def end_async() -> None:
        end()

    task = app.task(name="work", max_attempts=1)(end_async if is_async else end)
    record = Record(app)
    await task.enqueue()
    await run_all(app)

    assert record.names == ["job.enqueue", "job.start", "job.end", *([special] if special else [])]
    assert record.ends[0].outcome == outcome
    if outcome == "failed" and is_async:
        assert record.ends[0].error is ending


async def test_a_handler_may_snooze_and_ask_for_a_retry_without_a_failure(app: App, caplog):
    @app.task
    async def wait(ctx: Context) -> None:
        if ctx.job.attempt == 1:
            raise Snooze(0.01)
        if ctx.job.attempt == 2:
            raise Retry(0.01)
        if ctx.job.attempt == 3:
            raise Retry(0.02, "the bank is closed")

    record = Record(app)
    job = await wait.enqueue()
    with caplog.at_level(logging.INFO, "holdfast.worker"):
        await run_all(app)

    assert [(end.outcome, end.is_asked) for end in record.ends] == [
        ("snoozed", False), ("retried", True), ("retried", True), ("completed", False)
    ]  # fmt: skip
    assert f"job {job.id} (wait) will retry in 0.01 s, as requested\n" in caplog.text
    assert f"job {job.id} (wait) will retry in 0.02 s, as requested: the bank is closed\n" in caplog.text
    assert {line.levelno for line in caplog.records if job.id in line.getMessage()} == {logging.INFO}


async def test_the_last_retry_that_is_asked_for_fails_the_job(app: App, caplog):
    @app.task(max_attempts=1)
    async def wait() -> None:
        raise Retry(0.01)

    record = Record(app)
    await wait.enqueue()
    await run_all(app)

    assert record.names[-1] == "job.fail"
    assert "failed: holdfast.Retry: " in caplog.text


async def test_the_log_names_the_place_in_user_code_where_a_job_failed(app: App, caplog):
    @app.task(max_attempts=2, retry=0.01)
    def charge() -> None:
        raise LookupError("there is no order 7")

    await charge.enqueue()
    await run_all(app)

    line = charge.function.__code__.co_firstlineno + 2
    place = f"LookupError: there is no order 7 (tests/app/test_hooks.py:{line})"
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [place, place]


async def test_an_effect_in_a_transaction_is_a_completed_end(on_each_store: App):
    needs(on_each_store, "join transactions")

    @on_each_store.task
    async def charge(ctx: Context) -> None:
        async with ctx.transaction():
            pass

    record = Record(on_each_store)
    await charge.enqueue()
    await run_all(on_each_store)

    assert [end.outcome for end in record.ends] == ["completed"]


async def test_each_job_of_a_batch_has_its_start_and_its_end(on_each_store: App):
    @on_each_store.task(batch=3, linger=0.05)
    async def charge(ctx: BatchContext, calls: list[Call[int]]) -> None:
        for call in calls:
            if call.argument == 2:
                call.fail(LookupError("there is no order 2"))

    record = Record(on_each_store)
    await charge.enqueue_many([(1,), (2,), (3,)])
    await run_all(on_each_store)

    assert sorted(record.names) == ["job.end"] * 3 + ["job.enqueue"] * 3 + ["job.fail"] + ["job.start"] * 3
    assert sorted(end.outcome for end in record.ends) == ["completed", "completed", "failed"]


async def test_an_aborted_attempt_is_reported(app: App):
    started = asyncio.Event()

    @app.task
    async def forever() -> None:
        started.set()
        await asyncio.Event().wait()

    record = Record(app)
    await forever.enqueue()
    worker = app.worker(drain_timeout=0)
    running_worker = asyncio.create_task(worker.run())
    await started.wait()
    worker.stop()
    await asyncio.wait_for(running_worker, LIMIT)

    assert [end.outcome for end in record.ends] == ["aborted"]


async def test_an_observer_that_fails_does_not_fail_the_job(app: App, caplog):
    @app.task
    async def charge() -> None: ...

    @app.on("job.start")
    def wrong(start: JobStart) -> None:
        raise ValueError("no")

    @app.on("job.end")
    async def wrong_too(end: JobEnd) -> None:
        raise ValueError("no")

    job = await charge.enqueue()
    await run_all(app)

    assert await job.state() == "completed"
    assert "wrong of 'job.start' failed" in caplog.text
    assert "wrong_too of 'job.end' failed" in caplog.text


async def test_a_slow_async_observer_delays_no_job_and_is_waited_for_at_the_end(app: App):
    seen: list[str] = []
    may_go_on = asyncio.Event()

    @app.task
    async def charge() -> None: ...

    @app.on("job.end")
    async def slow(end: JobEnd) -> None:
        await may_go_on.wait()
        seen.append(end.job.id)

    jobs = await charge.enqueue_many([()] * 10)
    running_worker = asyncio.create_task(run_all(app))
    for job in jobs:
        assert await job.wait(LIMIT) == "completed"
    assert seen == []
    may_go_on.set()
    await running_worker

    assert sorted(seen) == sorted(job.id for job in jobs)


async def test_an_observer_that_was_taken_off_is_called_no_more(app: App):
    seen: list[JobEnqueue] = []

    @app.task
    async def charge() -> None: ...

    app.on("job.enqueue", seen.append)
    await charge.enqueue()
    app.off("job.enqueue", seen.append)
    await charge.enqueue()

    assert len(seen) == 1


async def test_an_enqueue_is_reported_with_whether_the_job_is_new(on_each_store: App):
    seen: list[tuple[str, bool]] = []

    @on_each_store.task
    async def charge(order_id: int) -> None: ...

    @on_each_store.on("job.enqueue")
    def note(value: JobEnqueue) -> None:
        assert "7" not in repr(value.job).partition("(")[2]
        seen.append((value.job_id, value.created))

    job = await charge.enqueue(order_id=7)
    await charge.options(job_id=job.id).enqueue(order_id=7)

    assert seen == [(job.id, True), (job.id, False)]


async def test_no_value_is_made_for_a_hook_without_observers(app: App, monkeypatch):
    made: list[object] = []
    monkeypatch.setattr("holdfast.worker.attempt_reports.JobEnd", lambda *args, **_: made.append(args))
    monkeypatch.setattr("holdfast.worker.attempt_reports.JobStart", lambda *args: made.append(args))
    monkeypatch.setattr("holdfast.app.observing.JobEnqueue", lambda *args, **_: made.append(args))
    monkeypatch.setattr("holdfast.worker.store_reports.JobClaim", lambda *args: made.append(args))
    monkeypatch.setattr("holdfast.worker.store_reports.JobFlush", lambda *args: made.append(args))
    monkeypatch.setattr("holdfast.worker.lease_reports.LeaseExtend", lambda *args: made.append(args))
    reported: list[object] = []
    monkeypatch.setattr(AttemptReports, "started", lambda *args: reported.append(args))

    @app.task
    async def at_once() -> None: ...

    @app.task
    def in_a_thread() -> int:
        return 1

    await at_once.enqueue()
    await in_a_thread.enqueue()
    worker = await run_all(app)

    assert worker.status().totals.completed == 2
    assert made == reported == []


async def test_jobs_of_a_dead_worker_are_reported(on_each_store: App):
    app = on_each_store
    seen: list[tuple[str, list[str]]] = []

    @app.task
    async def charge() -> None: ...

    app.on("job.rescue", lambda rescue: seen.append((rescue.worker_id, [job.job_id for job in rescue.jobs])))
    job = await charge.enqueue()
    lease = timedelta(seconds=0.3)
    await app.backend.jobs.claim(ClaimRequest(worker_id="gone", tasks=("charge",), limit=1, lease=lease))
    await run_all(app, lease=0.5)

    assert seen == [("gone", [job.id])]


async def test_failing_calls_of_the_store_and_its_recovery_are_reported(app: App, monkeypatch, caplog):
    seen: list[str] = []
    app.on("store.fail", lambda failure: seen.append(f"{failure.what} failed: {failure.error}"))
    app.on("store.recover", lambda failure: seen.append(f"recovered from {failure.what}"))

    @app.task
    async def charge() -> None: ...

    await charge.enqueue()
    backend = await app.opened()
    claim, calls = backend.jobs.claim, iter([StoreUnavailable("gone")])

    async def failing(request: ClaimRequest) -> object:
        for error in calls:
            raise error
        return await claim(request)

    monkeypatch.setattr(type(backend.jobs), "claim", lambda _, request: failing(request))
    await run_all(app)

    assert seen == ["claim failed: gone", "recovered from claim"]
    assert "claim failed, retrying: gone" in caplog.text


async def test_a_worker_in_a_block_is_reported_from_start_to_end(app: App):
    seen: list[str] = []
    done: list[int] = []
    app.on("worker.start", lambda start: seen.append(f"start on {start.store.partition(':')[0]}"))
    app.on("worker.end", lambda end: seen.append(f"end: {end.totals}"))
    app.on("worker.report", lambda report: done.append(report.totals.completed))

    @app.task
    async def charge() -> None: ...

    job = await charge.enqueue()
    async with app.working(poll_interval=0.02):
        await job.wait(LIMIT)

    assert seen == ["start on sqlite", "end: 1 completed"]
    assert done[-1] == 1


async def test_the_handling_of_events_and_the_moves_of_partitions_are_reported(on_each_store: App):
    needs(on_each_store, "keep streams")
    app = on_each_store
    seen: list[HandlingStart | HandlingEnd] = []
    moves: list[PartitionMove] = []
    app.on("event.start", seen.append)
    app.on("event.end", seen.append)
    app.on("partition.move", moves.append)

    @app.consumer("billing", category="orders", poll_interval=0.05, retry=0.01)
    async def billing(event: Event) -> None:
        if len(seen) == 1:
            raise LookupError("there is no order 7")

    await append(app, "a", 2)
    async with running(app.node(timing=TIMING)):
        await eventually(drained(app))

    ends = [value for value in seen if isinstance(value, HandlingEnd)]
    assert [type(value) for value in seen] == [HandlingStart, HandlingEnd] * 3
    assert [(end.outcome, end.attempt, end.events[0].version) for end in ends] == [
        ("failed", 1, 1), ("done", 2, 1), ("done", 1, 2)
    ]  # fmt: skip
    assert isinstance(ends[0].error, LookupError)
    assert {move.change for move in moves} >= {"granted", "released"}
    assert {move.consumer for move in moves} == {"billing"}
