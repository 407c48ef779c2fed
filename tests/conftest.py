"""What all tests share: the profile of Hypothesis, their order, and what is written at the end of a run.

With CI=true examples are derived from the test alone, so that a red build stays red when it is repeated.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings
from tests.servers.downloads import await_download, start_downloads
from tests.servers.missing import write_missing
from tests.servers.store_times import store_of, write_times

settings.register_profile(
    "quick",
    deadline=None,
    print_blob=True,
    derandomize=os.environ.get("CI") == "true",
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("quick")

_USUAL_TIMEOUT = 60  # seconds, as in pyproject.toml


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests that may take longest first: at the end of a run they would leave all workers but one idle."""
    items.sort(key=lambda item: _timeout_of(item) <= _USUAL_TIMEOUT)


def pytest_collection_finish(session: pytest.Session) -> None:
    if not session.config.option.collectonly:
        start_downloads({store_of(item.nodeid) for item in session.items})


@pytest.hookimpl(wrapper=True, tryfirst=True)  # outside of the test's own time
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    await_download(store_of(item.nodeid))
    return (yield)


def _timeout_of(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0]) if marker is not None and marker.args else _USUAL_TIMEOUT


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    write_times(terminalreporter)
    write_missing(terminalreporter)
