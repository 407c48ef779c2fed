"""What all tests share: the profiles of Hypothesis.

`quick` runs in `make test`, `long` in `make test-slow` (chosen per test by `tests.stateful`). With CI=true examples are
derived from the test alone, so that a red build stays red when it is repeated.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings
from tests.servers.missing import pytest_terminal_summary

settings.register_profile(
    "quick",
    deadline=None,
    print_blob=True,
    derandomize=os.environ.get("CI") == "true",
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("quick")

__all__ = ["pytest_terminal_summary"]
