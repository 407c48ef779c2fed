"""When the thread of the heartbeat gives its node up: by a clock that the test moves, and with no store to be had."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.model.allocation import Grant, NodeKey, Share, Timing
from holdfast.store.jobs import Extender
from holdfast.streams.broker import Broker
from holdfast.streams.heartbeat import EventHandlerStuck, NodeHeartbeat

LIMIT, GRACE = 5.0, 10.0
GRANT = Grant(Share("billing", "orders", 0), 1)


def no_store() -> Extender:
    raise StoreUnavailable("down")


@pytest.fixture
def died_at(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let the thread wait for these spans, one after the other, from time 0 on; return when it died of what."""

    def run(*waits: float) -> tuple[float, BaseException] | None:
        now = 0.0
        spans = list(waits)
        deaths: list[tuple[float, BaseException]] = []

        def wait(_: float) -> bool:
            nonlocal now
            if spans:
                now += spans.pop(0)
                return False
            return True

        heartbeat = NodeHeartbeat(
            NodeKey("node", "life-1"),
            Timing(),
            Broker(Timing()),
            open_extender=no_store,
            limits={1: (LIMIT, GRANT)},
            stuck_grace=GRACE,
            answered=lambda _: pytest.fail("there is no store that answers"),
            died=lambda error: deaths.append((now, error)),
        )
        monkeypatch.setattr(heartbeat, "now", lambda: now)
        monkeypatch.setattr(heartbeat, "pause", wait)
        heartbeat._run()
        return deaths[0] if deaths else None

    return run


def test_a_handler_past_its_limit_and_a_grace_ends_the_heartbeats_of_its_node(died_at):
    at, error = died_at(*[0.5] * 40)
    assert at == LIMIT + GRACE + 0.5
    assert isinstance(error, EventHandlerStuck)
    assert "consumer billing is stuck 10.5 s past its time limit" in str(error)


def test_a_process_that_stood_still_past_the_limit_has_the_grace_from_when_it_goes_on(died_at):
    assert died_at(1.0, 16.0, *[0.5] * 20) is None
    at, _ = died_at(1.0, 16.0, *[0.5] * 21)
    assert at == 17.0 + GRACE + 0.5
