"""A store, workers on it, and a view of what they did."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.system.harness import Gate, Ledger, Workers
from tests.system.stores import SqliteStore, Store


@pytest.fixture(params=["sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    assert request.param == "sqlite"
    return SqliteStore(tmp_path / "ledger.db")


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
