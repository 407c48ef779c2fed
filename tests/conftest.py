"""What all tests share: the profile of Hypothesis, and what is written at the end of a run.

With CI=true examples are derived from the test alone, so that a red build stays red when it is repeated.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from tests.servers.missing import write_missing
from tests.servers.store_times import write_times

settings.register_profile(
    "quick",
    deadline=None,
    print_blob=True,
    derandomize=os.environ.get("CI") == "true",
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("quick")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    write_times(terminalreporter)
    write_missing(terminalreporter)
