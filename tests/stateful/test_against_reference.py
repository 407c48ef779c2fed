"""No sequence of verbs tells a store from the reference model, whatever stale handles take part, and no schedules."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from tests.stateful.batch_machine import BatchMachine
from tests.stateful.machine import StoreMachine
from tests.stateful.schedules_machine import SchedulesMachine
from tests.stateful.stores import machine_for

STORES = [
    *("sqlite", "sqlite-memory", "postgres", "mariadb", "valkey"),
    *(pytest.param(store, marks=pytest.mark.slow) for store in ("mysql", "redis")),
]
EXAMPLES = {"sqlite": 20, "sqlite-memory": 5, "postgres": 8, "mariadb": 4, "mysql": 4, "valkey": 15, "redis": 15}
"""How many examples are tried; `make test-slow` tries many more."""


@pytest.mark.timeout(300)  # passing takes seconds; a failure needs minutes to be made small
@pytest.mark.parametrize("store", STORES)
def test_no_sequence_of_verbs_tells_a_store_from_the_reference(store: str, tmp_path: Path) -> None:
    run_state_machine_as_test(
        machine_for(store, tmp_path, BatchMachine),
        settings=settings(max_examples=EXAMPLES[store], stateful_step_count=40),
    )


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("store", STORES)
def test_no_long_sequence_of_verbs_tells_a_store_from_the_reference(store: str, tmp_path: Path) -> None:
    examples = 400 if store == "sqlite-memory" else 80  # the rules are shared: most of what can differ shows in memory
    run_state_machine_as_test(
        machine_for(store, tmp_path, BatchMachine), settings=settings(max_examples=examples, stateful_step_count=60)
    )


def test_the_machine_agrees_with_itself() -> None:
    run_state_machine_as_test(StoreMachine, settings=settings(max_examples=20, stateful_step_count=40))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("store", STORES)
def test_no_sequence_of_schedules_tells_a_store_from_the_reference(store: str, tmp_path: Path) -> None:
    machine = machine_for(store, tmp_path, SchedulesMachine)
    run_state_machine_as_test(machine, settings=settings(max_examples=EXAMPLES[store] // 2, stateful_step_count=50))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("store", STORES)
def test_no_long_sequence_of_schedules_tells_a_store_from_the_reference(store: str, tmp_path: Path) -> None:
    machine = machine_for(store, tmp_path, SchedulesMachine)
    examples = 100 if store == "sqlite-memory" else 30  # as above
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=60))


def test_the_machine_of_schedules_agrees_with_itself() -> None:
    run_state_machine_as_test(SchedulesMachine, settings=settings(max_examples=20, stateful_step_count=50))
