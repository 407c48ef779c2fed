"""Jobs without a limit key run the statements that they ran before there were limit keys, and no others."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import msgspec
import pytest

from holdfast.backends.postgres.job_rows import PostgresJobRows
from holdfast.backends.postgres.verbs.enqueue import insert_any
from holdfast.backends.sql.files import SHARED, own_statements
from holdfast.backends.sql.steps import Ask, Each, Together
from holdfast.model.job import JobState, NewJob
from holdfast.store.job_rows import Change, JobRow

JOB = NewJob(id="00000000-0000-7000-8000-000000000001", queue="mail", task="greet", payload="{}")
LANES = {("mail", "greet"): 1}
ROW = JobRow(
    *(JOB.id, 1, 1, "mail", "greet", None, None, JobState.RUNNING, 0, 5, 0, 1, 0, 0, 0, False, False, False, False),
    *(None, 1, "w", 0, 1, None, None),
)
KEYS = {name for name in own_statements(SHARED) if "limit_key" in name} | {"limited_keys", "open_slots"}


def asked(steps: Generator[Any, Any, Any], answers: dict[str, list[Any]] | None = None) -> list[str]:
    """Return the names of the statements that a verb runs."""
    names: list[str] = []
    answer: Any = None
    while True:
        try:
            request = steps.send(answer)
        except StopIteration:
            return names
        parts = request.asks if isinstance(request, Together) else [request]
        found = [one.statement for one in parts if isinstance(one, Ask | Each)]
        names += found
        rows = [(answers or {}).get(name, []) for name in found]
        answer = rows if isinstance(request, Together) else rows[0] if rows else []


def test_an_enqueue_is_one_statement():
    assert asked(insert_any([JOB], LANES, joins=False)) == ["enqueue_one"]
    assert asked(insert_any([JOB, JOB], LANES, joins=False)) == ["enqueue"]


def test_an_enqueue_with_a_limit_key_locks_the_key():
    limited = msgspec.structs.replace(JOB, limit_key="k")
    answers = {"enqueue_ordered": [(JOB.id, 1, 0, 7, False, None, True)]}
    assert asked(insert_any([limited], LANES, joins=False), answers)[:3] == [
        "enqueue_ordered", "add_limit_keys", "lock_limit_keys",
    ]  # fmt: skip
    answers = {"enqueue_ordered": [(JOB.id, 1, 0, 7, False, None, False)]}
    assert asked(insert_any([limited], LANES, joins=True), answers) == ["enqueue_ordered"]


@pytest.mark.parametrize("state", [JobState.READY, JobState.SCHEDULED, JobState.FAILED])
def test_the_end_of_an_attempt_asks_nothing_of_keys(state):
    change = Change(ROW, ROW._replace(state=state, finished_at=1, reason=""))
    names = asked(PostgresJobRows().write(0, [change]))
    assert names == ["leave_running", f"put_{state}"]
    assert not KEYS.intersection(names)
    limited = Change(ROW._replace(limit_key="k"), change.new._replace(limit_key="k"))
    assert "lock_order_keys" in asked(PostgresJobRows().write(0, [limited]))
