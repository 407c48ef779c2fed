"""The stores that have streams; the others refuse them, which `tests/redis/test_refusals.py` shows."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["reference", "sqlite", "sqlite-memory", "postgres"])
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)
