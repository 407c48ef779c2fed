"""Which state of which process fails which probe."""

from __future__ import annotations

import os

import pytest

from holdfast import App
from holdfast.telemetry.health import STILL, ready, workers_live, workers_ready
from holdfast.telemetry.seat_board import SeatReport

NOW = 1000.0
FINE = SeatReport(0, os.getpid(), NOW, is_extending=True, is_connected=True, is_draining=False)


@pytest.mark.parametrize(
    ("state", "is_live", "failed"),
    [
        (FINE, True, set()),
        (FINE._replace(is_connected=False), True, {"store"}),
        (FINE._replace(is_draining=True), True, {"stopping"}),
        (FINE._replace(turned_at=NOW - STILL - 1), True, {"claims"}),
        (FINE._replace(pid=0), True, {"processes", "schema"}),
        (FINE._replace(is_extending=False), False, set()),
    ],
)
def test_each_state_fails_its_own_checks(state: SeatReport, is_live: bool, failed: set[str]):
    found = workers_ready([FINE, state._replace(seat=1)], NOW)

    assert {name for name, check in found.checks.items() if not check.ok} == failed
    assert found.status == (503 if failed else 200)
    assert workers_live([FINE, state]).ok is is_live


async def test_an_app_is_ready_when_its_tables_fit(app: App):
    found = await ready(app)

    assert found.ok
    assert set(found.checks) == {"store", "schema"}
