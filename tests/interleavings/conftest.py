"""One arena on each store for all tests of a process: its states are set up once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Literal, Protocol

import pytest
from tests.interleavings.arena import Arena, Seen
from tests.interleavings.mysql import open_mysql_arena
from tests.interleavings.postgres import open_postgres_arena
from tests.servers import mysql
from tests.servers.missing import give_up
from tests.servers.postgres import NoServerError, drop_schema, new_schema_url

from holdfast.backends.postgres import blockers

# What is specific to its deadlock detection, which the sides can steer, or takes too many orders elsewhere.
ON_POSTGRES = pytest.mark.parametrize("explore", ["postgres"], indirect=True)
# What every worker and every producer does all day: two of these at once are tried with each change, and both commit.
# `make test-slow` tries them with every ending, `make exhaustive` all pairs.
USUAL = {
    *("enqueue", "enqueue both", "claim", "extend many", "complete", "complete inside", "retried", "release", "rescue"),
    *("promote", "cancel", "stale complete", "stale extend many", "stale complete inside"),
    *("enqueue third", "complete x, y", "complete mixed", "batch inside", "mixed batch inside"),
    *("enqueue u", "enqueue u too", "enqueue u while waiting", "replace u", "replace u too", "retry"),
    *("fire", "fire one", "pause schedule", "put other times"),
    *("enqueue child", "enqueue child of both", "complete second", "failed", "settle", "enqueue grandchild"),
}
# On MariaDB `make test` runs pairs of these, `make test-slow` with every ending, and on MySQL.
QUICK_ON_MYSQL = {
    *("enqueue", "claim", "extend many", "complete", "complete inside", "retried", "rescue", "promote", "cancel"),
    *("stale complete", "stale complete inside"),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave pairs of other than usual operations to `make exhaustive`; on MariaDB, most of the usual ones, too."""
    left_out = set[pytest.Item]()
    for item in items:
        given = getattr(item, "callspec", None)
        if given is None or not {"explore", "pair"} <= given.params.keys():
            continue
        quick = USUAL if given.params["explore"] == "postgres" else QUICK_ON_MYSQL
        if quick.issuperset(given.params["pair"]):
            continue
        if item.get_closest_marker("slow"):
            item.own_markers = [mark for mark in item.own_markers if mark.name != "slow"]
            item.add_marker(pytest.mark.torture)
        elif given.params["explore"] == "mariadb":
            left_out.add(item)
    items[:] = [item for item in items if item not in left_out]


class Explore(Protocol):
    """Runs operations together, from a state of the job."""

    def __call__(self, state: str, names: Sequence[str], *, every: bool = False, rolls_back: bool = True) -> Seen: ...


@asynccontextmanager
async def _arena(store: Literal["postgres"] | mysql.Flavour) -> AsyncIterator[Arena]:
    if store != "postgres":
        with mysql.clean_database(store) as url:
            async with open_mysql_arena(url) as arena:
                yield arena
        return
    try:
        url = new_schema_url()
    except NoServerError as error:
        give_up("PostgreSQL", str(error))
    with pytest.MonkeyPatch.context() as patch:
        # A rescue whose lease is locked waits half a second for the server to name the session that holds it. Here the
        # holder stands still until the rescue has ended: the wait would be 60 % of the time of all pairs with a rescue.
        patch.setattr(blockers, "_WAIT", 1)
        async with open_postgres_arena(url) as arena:
            yield arena
    drop_schema(url)


@pytest.fixture(scope="session", params=["postgres", "mariadb", pytest.param("mysql", marks=pytest.mark.slow)])
def explore(request: pytest.FixtureRequest) -> Iterator[Explore]:
    with asyncio.Runner() as runner:
        opening = _arena(request.param)
        arena = runner.run(opening.__aenter__())

        def explore(state: str, names: Sequence[str], *, every: bool = False, rolls_back: bool = True) -> Seen:
            rolls_back = rolls_back and (request.param == "postgres" or QUICK_ON_MYSQL.issuperset(names))
            return runner.run(arena.explore(state, names, every=every, rolls_back=rolls_back))

        yield explore
        runner.run(opening.__aexit__(None, None, None))
