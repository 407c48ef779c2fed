"""What a process counts of the jobs that it enqueues and runs."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import weakref
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry
from tests.app.work import run_all, working
from tests.telemetry.samples import samples_of

from holdfast import App, BatchContext, Call, Cancel, Context, Snooze
from holdfast.store.values import ClaimRequest
from holdfast.telemetry import measure
from holdfast.telemetry.families import MOST_NAMES, OTHER, BoundedNames, families_of
from holdfast.telemetry.job_metrics import metrics_of

ORDERS = {"queue": "orders", "task": "charge"}


@pytest.fixture
def registry(app: App) -> CollectorRegistry:
    registry = CollectorRegistry()
    measure(app, registry)
    return registry


async def test_every_end_of_an_attempt_is_counted_by_its_outcome(app: App, registry: CollectorRegistry):
    @app.task(queue="orders", retry=0.01, max_attempts=2)
    async def charge(ctx: Context, how: str) -> None:
        if ctx.job.attempt == 1 and how == "snooze":
            raise Snooze(0.01)
        if how == "fail":
            raise LookupError(how)
        if how == "cancel":
            raise Cancel(how)

    await charge.enqueue_many([["fail"], ["cancel"], ["snooze"], ["end"]])
    await run_all(app)

    samples = samples_of(registry)
    assert samples.value("holdfast_jobs_enqueued_total", **ORDERS) == 4
    ends = {"completed": 2, "failed": 1, "retried": 1, "cancelled": 1, "snoozed": 1}
    for outcome, number in ends.items():
        assert samples.value("holdfast_jobs_finished_total", **ORDERS, outcome=outcome) == number
    assert samples.value("holdfast_job_run_seconds_count", **ORDERS) == 6
    assert samples.value("holdfast_job_wait_seconds_count", **ORDERS) == 6
    assert 0 <= samples.value("holdfast_job_wait_seconds_sum", **ORDERS) < 60
    assert samples.value("holdfast_jobs_running", queue="orders") == 0
    assert samples.value("holdfast_claim_seconds_count", queue="*") >= 1
    assert samples.value("holdfast_finish_flush_seconds_count", queue="*") >= 1


async def test_a_job_that_was_there_already_is_not_counted_as_enqueued(app: App, registry: CollectorRegistry):
    @app.task(queue="orders")
    async def charge() -> None: ...

    for _ in range(2):
        await charge.options(unique_key="7").enqueue()

    assert samples_of(registry).value("holdfast_jobs_enqueued_total", **ORDERS) == 1


async def test_an_app_that_is_measured_twice_counts_once(app: App, registry: CollectorRegistry):
    @app.task(queue="orders")
    async def charge() -> None: ...

    measure(app, registry)
    await charge.enqueue()

    assert samples_of(registry).value("holdfast_jobs_enqueued_total", **ORDERS) == 1


async def test_running_jobs_slots_and_extensions_are_reported(app: App, registry: CollectorRegistry):
    begun, go_on = asyncio.Event(), asyncio.Event()

    @app.task(queue="orders")
    async def charge() -> None:
        begun.set()
        await go_on.wait()

    extended = asyncio.Event()
    app.on("lease.extend", lambda _: extended.set())
    await charge.enqueue()
    async with asyncio.timeout(15), app.working(concurrency=3, queues=["orders", "mails"], lease=0.6):
        await begun.wait()
        await extended.wait()
        samples = samples_of(registry)
        go_on.set()

    assert samples.value("holdfast_jobs_running", queue="orders") == 1
    assert samples.value("holdfast_worker_slots", queue="orders,mails") == 3
    assert samples.value("holdfast_finish_buffer_rows", queue="orders,mails") == 0
    assert samples.value("holdfast_lease_extend_total", queue="orders") >= 1
    assert (
        0
        < samples.value("holdfast_lease_margin_seconds_sum")
        <= 0.3 * samples.value("holdfast_lease_margin_seconds_count")
    )


@pytest.mark.parametrize("found_by", ["extend", "finish"])
async def test_a_lost_lease_is_counted_once_by_how_it_was_found(app: App, registry: CollectorRegistry, found_by: str):
    begun, go_on, lost = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @app.task(queue="orders")
    async def charge(ctx: Context) -> None:
        if ctx.job.attempt == 1:
            begun.set()
            await go_on.wait()

    app.on("lease.lose", lambda _: lost.set())
    job = await charge.enqueue()
    async with asyncio.timeout(15), working(app, lease=0.4 if found_by == "extend" else 30.0):
        await begun.wait()
        await app.queues.pause("orders")  # otherwise this worker claims it again
        await app.jobs.reset(job.id)
        if found_by == "finish":
            go_on.set()
        await lost.wait()
        go_on.set()

    assert samples_of(registry).value("holdfast_lease_lost_total", queue="orders", reason=found_by) == 1


async def test_the_jobs_of_a_silent_worker_are_counted_as_rescued(app: App, registry: CollectorRegistry):
    @app.task(queue="orders")
    async def charge() -> None: ...

    await charge.enqueue()
    lease = timedelta(seconds=0.2)
    await app.backend.jobs.claim(ClaimRequest(worker_id="gone", tasks=("charge",), limit=1, lease=lease))
    await run_all(app, lease=0.4)

    assert samples_of(registry).value("holdfast_rescued_total", queue="orders", reason="expired") == 1


async def test_each_job_of_a_batch_is_counted(app: App, registry: CollectorRegistry):
    @app.task(batch=10)
    async def post(ctx: BatchContext[int], calls: list[Call[int]]) -> None: ...

    await post.enqueue_many([[n] for n in range(5)])
    await run_all(app)

    samples = samples_of(registry)
    assert samples.value("holdfast_jobs_finished_total", task="post", outcome="completed") == 5
    assert samples.value("holdfast_jobs_running", queue="default") == 0


async def test_no_label_holds_an_id_or_a_key(app: App, registry: CollectorRegistry):
    @app.task(queue="orders")
    async def charge() -> None: ...

    job = await charge.options(order_key="customer-3").enqueue()
    worker = await run_all(app, worker_id="w-7")

    values = {value for sample in samples_of(registry).all for value in sample.labels.values()}
    assert "orders" in values
    for hidden in (job.id, "customer-3", worker.worker_id, "w-7"):
        assert not [value for value in values if hidden in value]


def test_names_beyond_the_bound_share_a_label():
    names = BoundedNames()
    labels = {names.label(f"customer-{number}") for number in range(MOST_NAMES + 50)}

    assert len(labels) == MOST_NAMES + 1
    assert OTHER in labels
    assert names.label("customer-0") == "customer-0"


def test_the_pairs_of_a_queue_and_a_task_are_bounded_too():
    registry = CollectorRegistry()
    metrics = metrics_of(families_of(registry))
    for number in range(MOST_NAMES * 2):
        metrics._of(f"queue-{number % 40}", f"task-{number % 50}{number // 200}")

    series = {(one.labels["queue"], one.labels["task"]) for one in samples_of(registry).all if "task" in one.labels}
    assert len({pair for pair in series if pair[1] != OTHER}) == MOST_NAMES
    assert {pair for pair in series if pair[1] == OTHER} == {(f"queue-{number}", OTHER) for number in range(40)}


def test_metrics_that_nothing_uses_any_more_are_freed():
    registry = CollectorRegistry()
    freed = weakref.ref(metrics_of(families_of(registry)))
    del registry
    gc.collect()

    assert freed() is None


def test_two_apps_share_the_metrics_of_a_registry(tmp_path):
    registry = CollectorRegistry()
    for name in ("a", "b"):
        measure(App(f"sqlite:///{tmp_path}/{name}.db"), registry)


def test_neither_library_is_imported_until_it_is_asked_for():
    code = """
import asyncio, sys
import holdfast, holdfast.cli.worker, holdfast.telemetry
app = holdfast.App("sqlite://")
@app.task
async def charge(): ...
async def main():
    async with app:
        await charge.enqueue()
        await app.drain("default")
asyncio.run(main())
print([name for name in ("opentelemetry", "prometheus_client") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
