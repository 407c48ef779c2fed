"""Unique keys on SQLite: what they cost, and what their statements read."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.app.work import connected
from tests.sqlite.conftest import Heard
from tests.sqlite.test_order_keys import is_short_scan

from holdfast.backends.sqlite.statements import STATEMENTS
from holdfast.model.instants import span_micros
from holdfast.model.outcome import Completed
from holdfast.store.values import Finish, Retention
from holdfast.testing.conformance.base import OUTCOMES, a_job, claim, claim_one, enqueue, finish
from holdfast.testing.conformance.unique import HOUR, PERIOD, REPLACE, WAITING, unique
from holdfast.testing.stores import open_store

CLAIMS = '[{"task": "greet", "unique_key": "k", "id": "x", "unique_scope": "waiting", "period": null}]'
KEY = {"task": "greet", "unique_key": "k", "id": "x"}
PLANNED: dict[str, Any] = {
    "add_free_key": ("greet", "k", "x", "waiting", None),
    "add_unique_key": ("greet", "k", "x", "waiting", None, False),
    "unique_holders": {"claims": CLAIMS, "now": 1},
    "hold_unique_keys": {**KEY, "unique_scope": "waiting", "until_at": None, "replaced_by": None},
    "drop_unique_keys": KEY,
    "drop_keys_of_pruned": KEY,
    "prune_unique_keys": {"now": 1, "limit": 10},
    "unique_among": {"seqs": "[1]"},
    "lock_waiting": {"id": "x", "now": 1, "priority_step": 1},
    "set_arguments": {"seq": 1, "payload": "", "turn": 1},
}


async def test_a_job_without_a_unique_key_costs_no_statement_more(tmp_path: Path, heard: Heard) -> None:
    async with open_store(f"sqlite:///{tmp_path}/jobs.db") as backend:
        await enqueue(backend, unique("first"), a_job())
        await claim(backend)
        heard.since()
        await enqueue(backend, a_job())
        assert heard.since() == ["take_seqs", "find_lane", "insert_job", "new_to_ready", "count_events"]
        for outcome in ("retried", "snoozed", "failed", "completed"):
            await enqueue(backend, a_job())
            await finish(backend, (await claim_one(backend)).lease, OUTCOMES[outcome])
        (waiting,) = await enqueue(backend, a_job())
        await backend.jobs.cancel(waiting, "")
        await backend.jobs.promote(10)
        await backend.jobs.rescue(None, 10)
        await backend.jobs.release([(await _held(backend)).lease], started=True)
        assert not [name for name in heard.since() if "unique" in name or "waiting" in name]


async def _held(backend: Any) -> Any:
    await enqueue(backend, a_job("other"))
    (job,) = await claim(backend, queues=["other"])
    return job


async def test_the_start_and_the_end_of_a_unique_job_cost_no_statement_more(tmp_path: Path, heard: Heard) -> None:
    async with open_store(f"sqlite:///{tmp_path}/jobs.db") as backend:
        heard_of: list[list[str]] = []
        for job in (a_job(), a_job(), unique("plain"), unique("w", WAITING), unique("p", PERIOD)):
            await enqueue(backend, job)
            heard.since()
            await finish(backend, (await claim_one(backend)).lease, Completed())
            heard_of.append(heard.since())
        assert heard_of[2:] == heard_of[1:2] * 3  # without the first, which looks whether there is a job


async def test_many_unique_jobs_take_as_many_statements_as_one(tmp_path: Path, heard: Heard) -> None:
    async with open_store(f"sqlite:///{tmp_path}/jobs.db") as backend:
        await enqueue(backend, a_job())
        heard.since()
        await enqueue(backend, unique())
        one = heard.since()
        await enqueue(backend, *(unique(str(number)) for number in range(1000)))
        assert heard.since() == one
        assert len(one) == 6
        again = [unique(str(number)) for number in range(1000)]
        assert True not in await backend.jobs.enqueue(again)
        assert heard.since() == ["add_free_key", "add_unique_key", "lock_unique_keys", "unique_holders"]


async def test_nothing_is_left_of_pruned_jobs_and_past_periods(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    async with open_store(f"sqlite:///{path}") as backend:
        await enqueue(backend, unique(), unique("p", PERIOD), unique("r"))
        await backend.jobs.enqueue([unique("r", on_conflict=REPLACE)])
        jobs = await claim(backend)
        await backend.jobs.finish([Finish(job.lease, Completed()) for job in jobs])
        with connected(path) as connection:
            connection.execute("update holdfast_unique_key set until_at = until_at - ?", [span_micros(HOUR)])
            connection.commit()
        await backend.jobs.prune(Retention(timedelta(0), None, None, None), 100)
        with connected(path) as connection:
            assert connection.execute("select * from holdfast_unique_key").fetchall() == []


@pytest.mark.parametrize("name", PLANNED)
async def test_no_statement_on_unique_keys_reads_more_than_it_needs(tmp_path: Path, name: str) -> None:
    path = tmp_path / "jobs.db"
    async with open_store(f"sqlite:///{path}") as backend:
        await enqueue(backend, *(unique(str(number)) for number in range(200)))
    with connected(path) as connection:
        connection.execute("analyze")
        plan = [row[3] for row in connection.execute(f"explain query plan {STATEMENTS[name]}", PLANNED[name])]
    assert not [step for step in plan if step.startswith("SCAN") and not _is_short(step)], plan
    assert not [step for step in plan if "BLOOM" in step], plan


def _is_short(step: str) -> bool:
    return is_short_scan(step) or step == "SCAN CONSTANT ROW"
