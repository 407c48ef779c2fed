"""What must not grow: the history of one job, and the cost of a claim."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from tests.app.work import connected

from holdfast import App
from holdfast.backends.sqlite.statements import STATEMENTS
from holdfast.model.attempt_records import KEEP_FIRST, KEEP_LAST
from holdfast.model.outcome import Failure, Retried
from holdfast.store.values import Finish
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import a_job, claim, enqueue
from holdfast.testing.stores import open_store


@pytest.mark.slow
async def test_ten_thousand_retries_leave_a_short_history():
    clock = ManualClock()
    failure = Failure("ValueError", "m" * 2048, "t" * 8192, "s" * 16)
    async with open_store("sqlite://", clock=clock) as backend:
        await enqueue(backend, a_job("patient", max_attempts=20_000))
        for _ in range(10_000):
            (job,) = await claim(backend)
            await backend.jobs.finish([Finish(job.lease, Retried(timedelta(0), failure))])
            clock.advance(timedelta(microseconds=1))
            await backend.jobs.promote(1)
        details = await backend.insight.job(job.id)

    attempts = [attempt.attempt for attempt in details.attempts]
    assert details.job.attempt == 10_000
    assert attempts == [*range(1, KEEP_FIRST + 1), *range(10_000 - KEEP_LAST + 1, 10_001)]


async def _noop() -> None: ...


PLANNED: dict[str, dict[str, Any]] = {
    "front_of_lane": {"lane_id": 1, "queue": "q", "task": "t", "fence": 1, "last_turn": 1, "limit": 1},
    "lease_front": {
        "lane_id": 1, "turn": 1, "seq": 1, "fence": 1, "worker_id": "w", "now": 1, "span": 1, "isolates": 1,
    },
    "leave_front": {"lane_id": 1, "turn": 1, "seq": 1},
    "claimable_lanes": {"tasks": "[]", "queues": None},
    "complete_many": {"seqs": "[]", "fence": 1, "now": 1},
    "leave_completed": {"seqs": "[]", "fence": 1, "followed": 0},
    "held_under": {"seqs": "[]", "fence": 1},
    "lock_leases": {"seqs": "[]", "fences": "[]", "now": 1},
    "ended": {"seqs": "[]", "fences": "[]"},
    "lock_job": {"id": "x", "now": 1, "priority_step": 1},
    "job_view": {"id": "x", "priority_step": 1},
    "list_ready": {"queue": None, "task": None, "limit": 1, "after_turn": 1, "after_seq": 1},
    "held": {"seqs": "[]"},
    "new_to_ready": {"after": 1, "now": 1, "priority_step": 1},
    "new_to_scheduled": {"after": 1, "now": 1, "priority_step": 1},
    "due_jobs": {"now": 1, "limit": 1},
    "next_due": {"now": 1},
    "old_completed": {"now": 1, "keep": 1, "limit": 1},
    "old_failed": {"now": 1, "keep": 1, "limit": 1},
    "old_cancelled": {"now": 1, "keep": 1, "limit": 1},
    "lock_completed": {"seqs": "[]", "now": 1, "keep": 1},
    "prune_completed": {"seqs": "[]"},
    "known_seq": {"id": "x"},
    "job_attempts": {"seq": 1},
}  # fmt: skip
LONG = ("holdfast_ready", "holdfast_job", "holdfast_scheduled", "holdfast_completed", "holdfast_attempt")


@pytest.mark.parametrize("name", PLANNED)
async def test_no_statement_of_the_way_of_a_job_scans_or_sorts_a_long_table(tmp_path, name):
    path = tmp_path / "jobs.db"
    async with App(f"sqlite:///{path}") as app:
        await app.task(_noop).enqueue_many([()] * 100)
    with connected(path) as connection:
        connection.execute("analyze")
        plan = [row[3] for row in connection.execute(f"explain query plan {STATEMENTS[name]}", PLANNED[name])]

    scans = [step for step in plan if step.startswith("SCAN") and any(table in step for table in LONG)]
    # A scan in the order of the primary key that stops at its LIMIT reads no more than it returns.
    bounded = {"due_jobs", "next_due"}
    assert name in bounded or not scans, plan
    sorts = [step for step in plan if "TEMP B-TREE" in step]
    # These sort lanes, of which there are few, or at most `limit` jobs of each.
    assert name in {"claimable_lanes", "list_ready"} or not sorts, plan


async def test_requests_to_cancel_are_found_by_their_index(tmp_path):
    path = tmp_path / "jobs.db"
    async with open_store(f"sqlite:///{path}"):
        pass
    with connected(path) as connection:
        plan = [row[3] for row in connection.execute(f"explain query plan {STATEMENTS['cancel_asked']}", ("w",))]

    assert "holdfast_running_cancel" in plan[0]


async def test_a_ready_row_without_its_job_breaks_no_claim(tmp_path):
    path = tmp_path / "jobs.db"
    async with open_store(f"sqlite:///{path}") as backend:
        await enqueue(backend, a_job("gone"))
        with connected(path) as connection:
            connection.execute("delete from holdfast_job")
        assert await claim(backend) == []
        await enqueue(backend, kept := a_job("kept"))
        assert [job.id for job in await claim(backend)] == [kept.id]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("queues", {"most": 100, "now": 1, "priority_step": 1}),
        ("waiting_tasks", {}),
        ("jobs_ahead", {"turn": 2**62, "seq": 1, "limit": 100}),
    ],
)
async def test_counting_up_to_a_limit_costs_the_same_however_many_jobs_there_are(tmp_path, name, parameters):
    path = tmp_path / "jobs.db"

    def steps() -> int:
        counted = 0

        def step() -> None:
            nonlocal counted
            counted += 1

        with connected(path) as connection:
            connection.set_progress_handler(step, 10)
            connection.execute(STATEMENTS[name], parameters).fetchall()
        return counted

    async with App(f"sqlite:///{path}") as app:
        task = app.task(_noop)
        await task.enqueue_many([()] * 200)
        await task.options(delay=60).enqueue_many([()] * 200)
        few = steps()
        await task.enqueue_many([()] * 5_000)
        await task.options(delay=60).enqueue_many([()] * 5_000)
        many = steps()
    assert few > 1
    assert many <= few * 1.1


@pytest.mark.parametrize(("name", "of"), [("running_of_queue", "default"), ("running_of_task", "greet")])
async def test_a_claim_counts_leases_up_to_the_limit_however_many_there_are(tmp_path, name: str, of: str):
    path = tmp_path / "jobs.db"
    steps: list[int] = []
    async with open_store(f"sqlite:///{path}") as backend:
        for number in (100, 1_000):
            await enqueue(backend, *[a_job() for _ in range(number)])
            assert len(await claim(backend, number)) == number
            with connected(path) as connection:
                taken: list[None] = []
                connection.set_progress_handler(partial(taken.append, None), 1)  # at each step of SQLite
                assert connection.execute(STATEMENTS[name], {"name": of, "most": 10}).fetchone() == (10,)
                steps.append(len(taken))
    assert steps[0] == steps[1]
