"""A store, workers on it, and a view of what they did."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.servers.missing import give_up
from tests.servers.postgres import NoServerError
from tests.system.harness import Gate, Ledger, Workers
from tests.system.stores import PostgresStore, RedisStore, SqliteStore, Store

# On a server these are tried with each change: kills, freezes, forks and a blocked event loop, each once. All others
# are as on SQLite, only with more round trips; `make test-slow` tries them on every store.
WITH_EACH_CHANGE = (
    "loses_no_job_and_doubles_no_effect[postgres-pay]",
    "killed_workers_jobs_run_again_within_a_second",
    "frozen_before_its_transaction",
    "blocks_the_event_loop_for_three_leases",
    "killed_node_is_replaced",
    "follows_many_writers",
    "dies_around_its_commit",
    "both_halves_of_a_forked_process",
)

# What Valkey cannot be put through, and why.
NOT_ON_VALKEY = (
    "test_stream_",  # no streams
    "test_process_consumers",
    "could_not_be_extended_for_two_leases",  # nothing locks the store for others
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    impossible: list[pytest.Item] = []
    for item in items:  # of all folders
        _, is_system, name = item.nodeid.rpartition("tests/system/")
        is_on_server = "postgres" in name or "[valkey" in name
        if is_system and is_on_server and not any(part in name for part in WITH_EACH_CHANGE):
            item.add_marker(pytest.mark.slow)
        if is_system and "[valkey" in name and any(part in name for part in NOT_ON_VALKEY):
            impossible.append(item)
    config.hook.pytest_deselected(items=impossible)
    items[:] = [item for item in items if item not in impossible]


@pytest.fixture(params=["sqlite", "postgres", "valkey"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    stores: dict[str, Callable[[], Store]] = {
        "sqlite": lambda: SqliteStore(tmp_path / "ledger.db"),
        "postgres": PostgresStore,
        "valkey": RedisStore,
    }
    try:
        store = stores[request.param]()
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
