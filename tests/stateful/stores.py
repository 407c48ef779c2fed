"""The machines' stores: every example gets an empty one, and returns it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import TypeVar

from hypothesis.stateful import invariant
from tests.redis.whole import check_whole
from tests.servers import mysql
from tests.servers.postgres_schemas import return_schema, take_schema
from tests.servers.redis import drop_store, new_store_url
from tests.stateful.machine import StoreMachine
from tests.stateful.schedules_machine import SchedulesMachine
from tests.stateful.streams_machine import StreamsMachine

from holdfast.testing.redis_server import Flavour

M = TypeVar("M", bound=StoreMachine | SchedulesMachine | StreamsMachine)
Taken = tuple[str, Callable[[], object]]  # the URL, and what returns the store
MYSQL: dict[str, mysql.Flavour] = {"mariadb": "mariadb", "mysql": "mysql"}
REDIS: dict[str, Flavour] = {"valkey": "valkey", "redis": "redis"}


def machine_for(store: str, folder: Path, base: type[M]) -> type[M]:
    """Return a machine whose every example runs on an empty store; skips the test where there is no server."""
    take = _taker(store, folder)
    _, end = take()
    end()

    class Machine(base):  # type: ignore[valid-type,misc]
        taken: Taken | None = None

        def url(self) -> str:
            self.taken = take()
            return self.taken[0]

        def teardown(self) -> None:
            super().teardown()
            if self.taken is not None:
                self.taken[1]()

    class RedisMachine(Machine):
        @invariant()
        def the_keys_agree(self) -> None:
            if self.taken is not None:
                check_whole(self.taken[0])

    return RedisMachine if store in REDIS else Machine


def _taker(store: str, folder: Path) -> Callable[[], Taken]:
    if store == "postgres":
        return _take_from_postgres
    if store in MYSQL:
        return partial(_take_from_mysql, MYSQL[store])
    if store in REDIS:
        return partial(_take_from_redis, REDIS[store])
    numbers = count()
    if store == "sqlite":
        return lambda: (f"sqlite:///{folder}/{next(numbers)}.db?synchronous=normal", _nothing)
    return lambda: ("sqlite://", _nothing)


def _take_from_postgres() -> Taken:
    schema = take_schema()
    return schema.url, partial(return_schema, schema)


def _take_from_mysql(flavour: mysql.Flavour) -> Taken:
    url = mysql.take_database(flavour)
    return url, partial(mysql.return_database, url)


def _take_from_redis(flavour: Flavour) -> Taken:
    url = new_store_url(flavour)
    return url, partial(drop_store, url)


def _nothing() -> None:
    """Do nothing: the file, or the memory, is that of one example."""
