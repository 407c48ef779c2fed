"""Relays that are killed in the middle of their batches: the topic has every event once, in order."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.kafka.relay_kills import RelayRun, hurt
from tests.servers.kafka import server_url

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def test_killed_relays_lose_and_double_nothing(tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'shop.db'}?synchronous=normal"
    with RelayRun(tmp_path, url, server_url()) as run:
        outcome = hurt(run, events=4000, kills=5, stops=0)

    assert outcome.is_good, str(outcome)
