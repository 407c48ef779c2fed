"""One arena for all tests of a process: its states are set up once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Protocol

import pytest
from tests.interleavings.arena import Arena, Seen, open_arena
from tests.servers.missing import give_up
from tests.servers.postgres import NoServerError, drop_schema, new_schema_url


class Explore(Protocol):
    """Runs operations together, from a state of the job."""

    def __call__(self, state: str, names: Sequence[str], *, every: bool = False, rolls_back: bool = True) -> Seen: ...


@pytest.fixture(scope="session")
def explore() -> Iterator[Explore]:
    try:
        url = new_schema_url()
    except NoServerError as error:
        give_up("PostgreSQL", str(error))
    with asyncio.Runner() as runner:
        opening = open_arena(url)
        arena: Arena = runner.run(opening.__aenter__())

        def explore(state: str, names: Sequence[str], *, every: bool = False, rolls_back: bool = True) -> Seen:
            return runner.run(arena.explore(state, names, every=every, rolls_back=rolls_back))

        yield explore
        runner.run(opening.__aexit__(None, None, None))
    drop_schema(url)
