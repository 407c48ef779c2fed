"""A worker that starts writes its limits although the reply to a commit is lost."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Limit
from holdfast.errors import OutcomeUnknown, StoreUnavailable
from holdfast.model.limits import LimitKey
from holdfast.worker.declared_limits import open_with_limits

LIMITS = {LimitKey("queue", "mails"): Limit(running=2)}


class LosesReplies:
    """A store that loses the replies to so many commits."""

    def __init__(self, lost: int) -> None:
        self.lost = lost
        self.written: list[Any] = []

    @property
    def queues(self) -> LosesReplies:
        return self

    async def open(self) -> None:
        pass

    async def declare(self, limits: Any) -> list[LimitKey]:
        self.written.append(limits)
        if len(self.written) <= self.lost:
            raise OutcomeUnknown("the connection broke before the server confirmed the commit")
        return []


async def test_limits_are_written_again_if_the_reply_was_lost():
    store: Any = LosesReplies(1)
    await open_with_limits(store, LIMITS)
    assert store.written == [LIMITS, LIMITS]


async def test_a_worker_whose_store_stays_away_reports_an_outage_and_not_an_unknown_outcome():
    store: Any = LosesReplies(2)
    with pytest.raises(StoreUnavailable, match="confirmed the commit"):
        await open_with_limits(store, LIMITS)
