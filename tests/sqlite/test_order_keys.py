"""The lines of order keys on SQLite: what is left behind, and what their statements read."""

from __future__ import annotations

from typing import Any

import pytest
from tests.app.work import connected
from tests.system.stores import check_lines

from holdfast.backends.sqlite.statements import STATEMENTS
from holdfast.model.outcome import Completed
from holdfast.store.backend import Backend
from holdfast.store.values import Finish
from holdfast.testing.conformance.base import claim, enqueue
from holdfast.testing.conformance.order_keys import keyed
from holdfast.testing.stores import open_store

PLANNED: dict[str, dict[str, Any]] = {
    "add_order_keys": {"after": 1},
    "new_to_blocked": {"after": 1},
    "vacant_order_keys": {"after": 1},
    "lock_order_keys": {"seqs": "[1]"},
    "first_blocked": {"key_ids": "[1]", "now": 1},
    "leave_blocked": {"seq": 1},
    "set_head": {"key_id": 1, "seq": 1},
    "drop_order_key": {"key_id": 1},
}


def is_short_scan(step: str) -> bool:
    return step.startswith(("SCAN given ", "SCAN json_each ", "SCAN lane"))  # lanes are few


async def _drain(backend: Backend) -> int:
    done = 0
    while jobs := await claim(backend):
        await backend.jobs.finish([Finish(job.lease, Completed()) for job in jobs])
        done += len(jobs)
    return done


async def test_a_line_that_is_empty_leaves_nothing_behind(tmp_path):
    path = tmp_path / "jobs.db"
    async with open_store(f"sqlite:///{path}") as backend:
        await enqueue(backend, *(keyed(f"customer-{number % 7}") for number in range(20)))
        with connected(path) as connection:
            check_lines(connection.execute, "holdfast_")
        assert await _drain(backend) == 20
        with connected(path) as connection:
            assert connection.execute("select * from holdfast_key_head").fetchall() == []
            assert connection.execute("select * from holdfast_blocked").fetchall() == []


@pytest.mark.parametrize("name", PLANNED)
async def test_no_statement_on_a_line_reads_more_than_it_needs(tmp_path, name):
    path = tmp_path / "jobs.db"
    async with open_store(f"sqlite:///{path}") as backend:
        await enqueue(backend, *(keyed(f"customer-{number % 20}") for number in range(200)))
    with connected(path) as connection:
        connection.execute("analyze")
        plan = [row[3] for row in connection.execute(f"explain query plan {STATEMENTS[name]}", PLANNED[name])]
    assert not [step for step in plan if step.startswith("SCAN") and not is_short_scan(step)], plan
    assert not [step for step in plan if "BLOOM" in step], plan  # it would be built from the whole table
    assert not [step for step in plan if "TEMP B-TREE" in step], plan
