"""A claim that concerns no limit runs the statements that it ran before there were limits, and no others."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.backends.postgres.verbs import claim as on_postgres
from holdfast.backends.sql.steps import Ask
from holdfast.backends.sqlite.verbs import claim as on_sqlite
from holdfast.store.values import Claim, ClaimRequest

REQUEST = ClaimRequest(worker_id="w", tasks=("greet",), limit=5, lease=timedelta(seconds=30))


def test_on_postgresql_it_is_one_statement():
    steps = on_postgres.claim(REQUEST, {})
    asked = next(steps)
    assert isinstance(asked, Ask)
    assert asked.statement == "claim"
    with pytest.raises(StopIteration) as end:
        steps.send([])
    assert end.value.value == on_postgres.Taken(Claim([]), {})


class Recorder:
    """A transaction of SQLite that records the names of its statements."""

    now = 1_000_000

    def __init__(self, is_limited: int) -> None:
        self.ran: list[str] = []
        self._is_limited = is_limited

    def rows(self, name: str, parameters: Any) -> list[tuple[Any, ...]]:
        self.ran.append(name)
        return [(1, "mail", "greet", 0, self._is_limited)] if name == "claimable_lanes" else []


def test_on_sqlite_the_lanes_are_read_and_no_limit():
    plain, limited = Recorder(0), Recorder(1)
    found: Any = on_sqlite.claimable(plain, REQUEST)  # type: ignore[arg-type]
    on_sqlite.claimable(limited, REQUEST)  # type: ignore[arg-type]
    assert (plain.ran, len(found.lanes)) == (["claimable_lanes"], 1)
    assert limited.ran == ["claimable_lanes", "claim_limits", "front_places"]
