"""One arena for all tests of a process: its states are set up once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from tests.interleavings.arena import Arena, open_arena
from tests.servers.missing import give_up
from tests.servers.postgres import NoServerError, drop_schema, new_schema_url

Explore = Callable[[Callable[[Arena], Coroutine[Any, Any, int]]], int]


@pytest.fixture(scope="session")
def explore() -> Iterator[Explore]:
    """Run a function of the arena to its end, in a loop that all tests share."""
    try:
        url = new_schema_url()
    except NoServerError as error:
        give_up("PostgreSQL", str(error))
    with asyncio.Runner() as runner:
        opening = open_arena(url)
        arena = runner.run(opening.__aenter__())
        yield lambda act: runner.run(act(arena))
        runner.run(opening.__aexit__(None, None, None))
    drop_schema(url)
