"""One arena on each store for all tests of a process: its states are set up once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

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
# `make test-slow` tries all pairs, with every ending.
USUAL = {
    *("enqueue", "enqueue both", "claim", "extend many", "complete", "complete inside", "retried", "release", "rescue"),
    *("promote", "cancel", "stale complete", "stale extend many", "stale complete inside"),
    *("enqueue third", "complete x, y", "complete mixed", "batch inside", "mixed batch inside"),
    *("enqueue u", "enqueue u too", "enqueue u while waiting", "replace u", "replace u too", "retry"),
    *("fire", "fire one", "pause schedule", "put other times"),
    *("enqueue child", "enqueue child of both", "complete second", "failed", "settle", "enqueue grandchild"),
}
# On MariaDB `make test` runs pairs of these, `make test-slow` all pairs of usual operations; of others both commit.
QUICK_ON_MYSQL = {
    *("enqueue", "claim", "extend many", "complete", "complete inside", "retried", "rescue", "promote", "cancel"),
    *("stale complete", "stale complete inside"),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """On MariaDB, leave most pairs of usual operations to `make test-slow`, and other pairs to a run by hand."""
    on_mysql = {item: item.callspec.params for item in items if _is_on_mysql(item)}  # type: ignore[attr-defined]
    for item, given in on_mysql.items():
        if item.get_closest_marker("slow") and not USUAL.issuperset(given["pair"]):
            item.own_markers = [mark for mark in item.own_markers if mark.name != "slow"]
            item.add_marker(pytest.mark.torture)
    items[:] = [item for item in items if item not in on_mysql or not _is_left_to_slow(item, on_mysql[item]["pair"])]


def _is_on_mysql(item: pytest.Item) -> bool:
    given = getattr(item, "callspec", None)
    return given is not None and given.params.get("explore") == "mysql" and "pair" in given.params


def _is_left_to_slow(item: pytest.Item, pair: tuple[str, str]) -> bool:
    is_slow = item.get_closest_marker("slow") or item.get_closest_marker("torture")
    return not is_slow and not QUICK_ON_MYSQL.issuperset(pair)


class Explore(Protocol):
    """Runs operations together, from a state of the job."""

    def __call__(self, state: str, names: Sequence[str], *, every: bool = False, rolls_back: bool = True) -> Seen: ...


@asynccontextmanager
async def _arena(store: str) -> AsyncIterator[Arena]:
    if store == "mysql":
        with mysql.clean_database() as url:
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


@pytest.fixture(scope="session", params=["postgres", "mysql"])
def explore(request: pytest.FixtureRequest) -> Iterator[Explore]:
    with asyncio.Runner() as runner:
        opening = _arena(request.param)
        arena = runner.run(opening.__aenter__())

        def explore(state: str, names: Sequence[str], *, every: bool = False, rolls_back: bool = True) -> Seen:
            rolls_back = rolls_back and (request.param == "postgres" or QUICK_ON_MYSQL.issuperset(names))
            return runner.run(arena.explore(state, names, every=every, rolls_back=rolls_back))

        yield explore
        runner.run(opening.__aexit__(None, None, None))
