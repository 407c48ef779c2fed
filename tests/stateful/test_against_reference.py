"""No sequence of verbs tells a store from the reference model, whatever stale handles take part, and no schedules."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import invariant, run_state_machine_as_test
from tests.redis.whole import check_whole
from tests.servers import mysql
from tests.servers.postgres_schemas import InstalledSchema, return_schema, take_schema
from tests.servers.redis import drop_store, new_store_url, server_url
from tests.stateful.batch_machine import BatchMachine
from tests.stateful.machine import StoreMachine
from tests.stateful.schedules_machine import SchedulesMachine

from holdfast.testing.redis_server import Flavour

STORES = [
    *("sqlite", "sqlite-memory", "postgres", "mariadb", "valkey"),
    *(pytest.param(store, marks=pytest.mark.slow) for store in ("mysql", "redis")),
]
EXAMPLES = {"sqlite": 20, "sqlite-memory": 5, "postgres": 8, "mariadb": 4, "mysql": 4, "valkey": 15, "redis": 15}
"""How many examples are tried; `make test-slow` tries many more."""
MYSQL: dict[str, mysql.Flavour] = {"mariadb": "mariadb", "mysql": "mysql"}
FLAVOURS: dict[str, Flavour] = {"valkey": "valkey", "redis": "redis"}


def machine_for(
    store: str, folder: Path, base: type[StoreMachine | SchedulesMachine] = BatchMachine
) -> type[StoreMachine | SchedulesMachine]:
    """Return a machine whose every example runs on an empty store."""
    if store == "postgres":
        return _machine_for_postgres(base)
    if store in MYSQL:
        return _machine_for_mysql(MYSQL[store], base)
    if store in FLAVOURS:
        return _machine_for_redis(FLAVOURS[store], base)
    examples = iter(range(10**9))

    class Machine(base):  # type: ignore[valid-type,misc]
        def url(self) -> str:
            return f"sqlite:///{folder}/{next(examples)}.db?synchronous=normal" if store == "sqlite" else "sqlite://"

    return Machine


def _machine_for_postgres(base: type[StoreMachine | SchedulesMachine]) -> type[StoreMachine | SchedulesMachine]:
    return_schema(take_schema())  # skips the test where there is no server

    class Machine(base):  # type: ignore[valid-type,misc]
        schema: InstalledSchema | None = None

        def url(self) -> str:
            self.schema = take_schema()
            return self.schema.url

        def teardown(self) -> None:
            super().teardown()
            if self.schema is not None:
                return_schema(self.schema)

    return Machine


def _machine_for_mysql(
    flavour: mysql.Flavour, base: type[StoreMachine | SchedulesMachine]
) -> type[StoreMachine | SchedulesMachine]:
    mysql.return_database(mysql.take_database(flavour))  # skips the test where there is no server

    class Machine(base):  # type: ignore[valid-type,misc]
        database: str | None = None

        def url(self) -> str:
            self.database = mysql.take_database(flavour)
            return self.database

        def teardown(self) -> None:
            super().teardown()
            if self.database is not None:
                mysql.return_database(self.database)

    return Machine


def _machine_for_redis(
    flavour: Flavour, base: type[StoreMachine | SchedulesMachine]
) -> type[StoreMachine | SchedulesMachine]:
    server_url(flavour)  # skips the test where there is no server

    class Machine(base):  # type: ignore[valid-type,misc]
        store_url = ""

        def url(self) -> str:
            self.store_url = new_store_url(flavour)
            return self.store_url

        @invariant()
        def the_keys_agree(self) -> None:
            if self.store_url:
                check_whole(self.store_url)

        def teardown(self) -> None:
            super().teardown()
            if self.store_url:
                drop_store(self.store_url)

    return Machine


@pytest.mark.timeout(300)  # passing takes seconds; a failure needs minutes to be made small
@pytest.mark.parametrize("store", STORES)
def test_no_sequence_of_verbs_tells_a_store_from_the_reference(store: str, tmp_path: Path) -> None:
    run_state_machine_as_test(
        machine_for(store, tmp_path), settings=settings(max_examples=EXAMPLES[store], stateful_step_count=40)
    )


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("store", STORES)
def test_no_long_sequence_of_verbs_tells_a_store_from_the_reference(store: str, tmp_path: Path) -> None:
    examples = 400 if store == "sqlite-memory" else 80  # the rules are shared: most of what can differ shows in memory
    run_state_machine_as_test(
        machine_for(store, tmp_path), settings=settings(max_examples=examples, stateful_step_count=60)
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
