"""Relays that are killed and frozen in the middle of their batches: the topic has every event once, in order."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.kafka.relay_kills import RelayRun, hurt
from tests.servers.kafka import server_url
from tests.servers.postgres_schemas import clean_schema

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def test_killed_and_frozen_relays_lose_and_double_nothing(tmp_path: Path):
    with clean_schema() as url, RelayRun(tmp_path, url, server_url()) as run:
        outcome = hurt(run, events=4000, kills=4, stops=1)

    assert outcome.is_good, str(outcome)
