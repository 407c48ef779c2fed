"""From a call to a job: options, ids, and what is kept of them."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest
from tests.app.work import ended, run_all, total, working

from holdfast import App, JobState


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


@dataclass
class Order:
    number: int
    price: Decimal
    at: datetime


@pytest.fixture
def seen() -> list[Any]:
    return []


@pytest.fixture
def note(app: App, seen: list[Any]):
    @app.task(queue="notes", max_attempts=4, priority=2, timeout=20)
    async def note(n: int, text: str = "none") -> str:
        seen.append((n, text))
        return f"{n} {text}"

    return note


async def test_calling_a_task_calls_the_function_and_makes_no_job(app, note, seen):
    assert await note(7, text="here") == "7 here"
    assert seen == [(7, "here")]
    assert await total(app) == 0
    assert (note.name, note.__name__, repr(note)) == ("note", "note", "<task note(n: int, text: str = 'none')>")


async def test_a_job_has_the_defaults_of_its_task(app, note):
    job = await note.enqueue(n=1)

    view = (await job.details()).job
    assert (view.queue, view.task, view.state) == ("notes", "note", JobState.READY)
    assert (view.max_attempts, view.priority, view.attempt) == (4, 2, 0)
    assert job.created


async def test_options_change_one_job_and_not_the_task(app, note):
    special = note.options(queue="urgent", priority=9, max_attempts=1, timeout=3, headers={"trace": "abc"})
    (held, *_) = [await special.enqueue(5, "x")]
    plain = await note.enqueue(5)

    details = await held.details()
    assert (details.job.queue, details.job.priority, details.job.max_attempts) == ("urgent", 9, 1)
    assert details.headers == {"trace": "abc"}
    (claimed,) = await app.claim("urgent")
    assert (claimed.job.timeout, claimed.job.headers) == (3.0, {"trace": "abc"})
    assert (await plain.details()).job.queue == "notes"


async def test_further_options_keep_those_given_before(app, note):
    urgent = note.options(queue="urgent", priority=9)

    view = (await (await urgent.options(order_key="a", priority=None).enqueue(5)).details()).job
    assert (view.queue, view.priority, view.order_key) == ("urgent", 2, "a")
    blocking = await asyncio.to_thread(note.sync.options(queue="urgent").options(priority=1).enqueue, 5)
    assert (await blocking.details()).job.queue == "urgent"
    assert (await (await urgent.enqueue(5)).details()).job.order_key is None


async def test_a_delayed_job_is_scheduled_from_the_stores_now(app, note):
    for option in (
        {"delay": 60},
        {"delay": timedelta(minutes=1)},
        {"run_at": datetime.now(UTC) + timedelta(minutes=1)},
    ):
        job = await note.options(**option).enqueue(n=1)
        view = (await job.details()).job
        assert view.state is JobState.SCHEDULED
        assert timedelta(seconds=55) < view.run_at - view.enqueued_at < timedelta(seconds=65)
    assert await app.claim("notes") == []


async def test_a_job_that_is_due_already_is_ready(app, note):
    past = datetime.now(UTC) - timedelta(days=1)

    assert await (await note.options(run_at=past).enqueue(n=1)).state() is JobState.READY
    assert await (await note.options(delay=0).enqueue(n=1)).state() is JobState.READY


async def test_a_short_delay_is_waited_for_and_then_the_job_runs(app, note, seen):
    job = await note.options(delay=0.2).enqueue(n=1)

    async with working(app):
        assert await ended(job) is JobState.COMPLETED
    details = await job.details()
    assert details.job.started_at is not None
    assert details.job.started_at - details.job.enqueued_at >= timedelta(seconds=0.2)


async def test_a_priority_is_a_head_start_and_equals_run_first_in_first_out(app, note, seen):
    await note.options(priority=0).enqueue(n=1)
    await note.options(priority=0).enqueue(n=2)
    await note.options(priority=5).enqueue(n=3)

    await run_all(app, concurrency=1)

    assert [n for n, _ in seen] == [3, 1, 2]


async def test_an_enqueue_repeated_with_the_same_id_makes_one_job(app, note, seen):
    job_id = str(uuid.uuid4())
    first = await note.options(job_id=job_id).enqueue(n=1)
    again = await note.options(job_id=job_id.upper()).enqueue(n=2)
    await run_all(app)
    after = await note.options(job_id=uuid.UUID(job_id)).enqueue(n=3)

    assert (first.created, again.created, after.created) == (True, False, False)
    assert first.id == again.id == after.id == job_id
    assert seen == [(1, "none")]


async def test_many_jobs_are_enqueued_in_order_all_with_ids_of_their_own(app, note, seen):
    jobs = await note.enqueue_many([{"n": 1}, (2, "two"), note.call(n=3)])
    more = await note.options(priority=-1).enqueue_many({"n": n} for n in range(4, 1004))

    assert len({job.id for job in [*jobs, *more]}) == 1003
    assert [job.id for job in more] == sorted(job.id for job in more)
    await run_all(app, concurrency=1)
    assert seen[:3] == [(1, "none"), (2, "two"), (3, "none")]
    assert [n for n, _ in seen[3:]] == list(range(4, 1004))


async def test_no_calls_make_no_jobs(app, note):
    assert await note.enqueue_many([]) == []
    assert await total(app) == 0


async def test_a_task_can_be_enqueued_by_its_name(app, note, seen):
    job = await app.enqueue("note", 3, text="by name")
    await run_all(app)

    assert seen == [(3, "by name")]
    assert await job.result() == "3 by name"


async def test_arguments_arrive_as_the_annotated_types_and_results_are_read_as_asked(app):
    seen: list[Any] = []

    @app.task
    async def ship(order: Order, size: Size, tags: set[str], raw: bytes) -> Order:
        seen.append((order, size, tags, raw))
        return order

    order = Order(7, Decimal("9.90"), datetime(2030, 1, 1, tzinfo=UTC))
    job = await ship.enqueue(order, Size.LARGE, tags={"a", "b"}, raw=b"\xff\0")
    await run_all(app)

    assert seen == [(order, Size.LARGE, {"a", "b"}, b"\xff\0")]
    assert await job.result() == order  # as the handler is annotated
    assert await app.job(job.id).result(Order) == order
    assert (await app.job(job.id).result())["number"] == 7


async def test_a_listener_whose_event_loop_was_closed_does_not_fail_an_enqueue(app: App):
    @app.task
    async def quick() -> None: ...

    backend = await app.opened()
    closed = asyncio.new_event_loop()
    closed.close()
    heard: list[str] = []
    tries: list[str] = []

    def dead() -> None:
        tries.append("dead")
        closed.call_soon_threadsafe(heard.append, "dead")

    backend.notifier.listen(dead)
    unlisten = backend.notifier.listen(lambda: heard.append("living"))
    jobs = [await quick.enqueue(), await quick.enqueue()]
    unlisten()
    assert set(tries) == {"dead"}
    tries.clear()
    jobs.append(await quick.enqueue())

    assert [await job.state() for job in jobs] == [JobState.READY] * 3
    assert set(heard) == {"living"}
    assert tries == [], "it was not asked again"
