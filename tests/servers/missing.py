"""What could not be tested for want of a server: named at the end of the run in red, and an error where CI=true."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

_MARK = "no server: "


def give_up(store: str, reason: str) -> NoReturn:
    """End a test that needs a server of which none can be had."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{_MARK}{store}: {reason}", pytrace=False)
    pytest.skip(f"{_MARK}{store}: {reason}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    missing: dict[str, int] = {}
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        text = reason.removeprefix("Skipped: ")
        if text.startswith(_MARK):
            missing[text.removeprefix(_MARK)] = missing.get(text.removeprefix(_MARK), 0) + 1
    for what, number in missing.items():
        terminalreporter.write_line(f"NOT TESTED ({number} tests): {what}", red=True, bold=True)
