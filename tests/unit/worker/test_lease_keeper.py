"""When the extending thread ends its process: by a clock that the test moves, and with no store to be had."""

from __future__ import annotations

import logging
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.worker.driver import leased

from holdfast.errors import StoreUnavailable
from holdfast.runtime.exit_code import ExitCode
from holdfast.store.jobs import Extender
from holdfast.worker import lease_keeper as keeper_module
from holdfast.worker.held_leases import HeldLeases
from holdfast.worker.lease_keeper import HandlerStuck, LeaseKeeper

LIMIT, GRACE = 5.0, 10.0


class Ended(BaseException):
    """The process would have ended here."""


def no_store() -> Extender:
    raise StoreUnavailable("down")


@pytest.fixture
def deaths() -> list[BaseException]:
    """What keepers have died of."""
    return []


@pytest.fixture
def ended_at(monkeypatch: pytest.MonkeyPatch, deaths: list[BaseException]) -> Any:
    """Let a keeper wait for these spans, one after the other, from time 0 on; return when it ended the process."""

    def run(*waits: float, owns_process: bool = True) -> float | None:
        now = 0.0
        spans = list(waits)
        ends: list[float] = []

        def wait(_: float) -> bool:
            nonlocal now
            if spans:
                now += spans.pop(0)
                return False
            return True

        def exit_(code: int) -> None:
            assert code == ExitCode.STUCK
            ends.append(now)
            raise Ended

        monkeypatch.setattr(keeper_module, "os", SimpleNamespace(_exit=exit_, getpid=lambda: 1))
        monkeypatch.setattr(logging, "shutdown", lambda: None)
        keeper = LeaseKeeper(
            HeldLeases(lease=30.0, extend_at=0.5),
            open_extender=no_store,
            heartbeat=lambda: pytest.fail("there is no store to tell"),
            lease=timedelta(seconds=30),
            limits={(1, 1): (LIMIT, leased(1))},
            stuck_grace=GRACE,
            owns_process=owns_process,
            lost=lambda _: None,
            cancel_asked=lambda _: None,
            died=deaths.append,
            turned=lambda: None,
        )
        monkeypatch.setattr(keeper, "now", lambda: now)
        monkeypatch.setattr(keeper, "pause", wait)
        keeper._run()
        return ends[0] if ends else None

    return run


def test_a_process_with_a_handler_past_its_limit_and_a_grace_is_ended(ended_at):
    assert ended_at(*[0.5] * 40) == LIMIT + GRACE + 0.5


def test_a_process_that_stood_still_past_the_limit_has_the_grace_from_when_it_goes_on(ended_at):
    assert ended_at(1.0, 16.0, *[0.5] * 20) is None
    assert ended_at(1.0, 16.0, *[0.5] * 21) == 17.0 + GRACE + 0.5


def test_waits_that_are_somewhat_late_put_nothing_off(ended_at):
    assert ended_at(*[2.0] * 10) == 16.0


def test_a_process_that_is_not_the_workers_own_is_left_alone_and_the_worker_is_told_of_the_job(ended_at, deaths):
    assert ended_at(*[0.5] * 40, owns_process=False) is None
    (death,) = deaths
    assert isinstance(death, HandlerStuck)
    assert [job.seq for job in death.jobs] == [1]
    assert "is stuck 10.5 s past its time limit" in str(death)
