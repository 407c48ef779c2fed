"""No sequence of verbs for streams tells a store from the reference model, whatever stale handles take part."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from tests.stateful.stores import machine_for
from tests.stateful.streams_machine import StreamsMachine

STORES = ["sqlite", "sqlite-memory", "postgres", "mariadb", pytest.param("mysql", marks=pytest.mark.slow)]
EXAMPLES = {
    "sqlite": 20,
    "sqlite-memory": 5,
    "postgres": 8,
    "mariadb": 4,
    "mysql": 4,
}  # `make test-slow` tries many more


@pytest.mark.timeout(300)  # passing takes seconds; a failure needs minutes to be made small
@pytest.mark.parametrize("store", STORES)
def test_no_sequence_of_verbs_tells_a_store_from_the_reference(store: str, tmp_path: Path) -> None:
    run_state_machine_as_test(
        machine_for(store, tmp_path, StreamsMachine),
        settings=settings(max_examples=EXAMPLES[store], stateful_step_count=40),
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("store", STORES)
def test_no_sequence_of_many_tells_a_store_from_the_reference(store: str, tmp_path: Path) -> None:
    examples = 50 if store == "sqlite-memory" else 25  # the rules are shared: most of what can differ shows in memory
    run_state_machine_as_test(
        machine_for(store, tmp_path, StreamsMachine), settings=settings(max_examples=examples, stateful_step_count=40)
    )


@pytest.mark.torture
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("store", STORES)
def test_no_long_sequence_of_verbs_tells_a_store_from_the_reference(store: str, tmp_path: Path) -> None:
    run_state_machine_as_test(
        machine_for(store, tmp_path, StreamsMachine), settings=settings(max_examples=300, stateful_step_count=60)
    )


def test_the_machine_agrees_with_itself() -> None:
    run_state_machine_as_test(StreamsMachine, settings=settings(max_examples=20, stateful_step_count=40))
