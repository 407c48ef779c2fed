"""A store, workers on it, and a view of what they did."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.servers.missing import give_up
from tests.servers.postgres import NoServerError
from tests.system.harness import Gate, Ledger, Workers
from tests.system.stores import PostgresStore, SqliteStore, Store

# Shown on PostgreSQL by `make test-slow`: as on SQLite, only with more round trips.
SLOW_ON_POSTGRES = (
    "broken_workers",
    "guilty_jobs",
    "killed_job_child_is_followed",
    "loses_no_outside_effect",
    "pay_in_thread-after_effect",
    "pay_in_thread-before_effect",
    "pay-before_commit",
    "job_child_dies_with_its_killed_worker",
    "stuck_job_runs_alone",
    "blocked_loop_keeps_the_jobs",
    "thread_that_ignores_the_end",
    "gives_the_running_job_back_at_once",
    "two_workers_end_when_nothing",
    "stopped_node_hands_over",
    "second_process_under_the_same_node_id",
    "second_sigterm_breaks_off",
    "can_be_cancelled_is_cut_short",
    "frozen_past_its_lease",
    "reset_under_load",
    "killed_leader",
    "drain_time",
    "always_fails",
    "hints_that_never_come",
    "joins_moves_its_part",
    "unforeseen_error_ends_with_70",
    "event_that_kills_its_node",
    "loses_no_job_and_doubles_no_effect[postgres-pay_in_thread]",
    "die_with_a_killed_supervisor",
    "postgres-pay_late_in_thread-new",
    "takes_over_what_a_killed_one_held",
    "paused_and_delayed_jobs_are_left",
    "stuck_handler_ends_with_71",
    "supervisor_asked_twice",
    "frozen_past_the_limit_of_its_job",
    "sigterm_lets_the_running_job_finish",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        name = item.nodeid.rpartition("tests/system/test_")[2]
        if "postgres" in name and any(part in name for part in SLOW_ON_POSTGRES):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    try:
        store = SqliteStore(tmp_path / "ledger.db") if request.param == "sqlite" else PostgresStore()
    except NoServerError as error:
        give_up("PostgreSQL", str(error))
    yield store
    store.close()


@pytest.fixture
def ledger(store: Store) -> Iterator[Ledger]:
    ledger = Ledger(store)
    yield ledger
    ledger.close()


@pytest.fixture
def workers(store: Store) -> Iterator[Workers]:
    workers = Workers(store)
    yield workers
    workers.close()


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Callable[[str], Gate]]:
    gates: list[Gate] = []

    def make(name: str) -> Gate:
        gates.append(Gate(tmp_path / f"gate-{name}"))
        return gates[-1]

    yield make
    for made in gates:
        made.close()
