"""Tests that need what cannot be had: named at the end of the run in red. Without a server they fail where CI=true."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

_MARK = "missing: "


def give_up(store: str, reason: str) -> NoReturn:
    """End a test that needs a server which cannot be had."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{_MARK}{store}: {reason}", pytrace=False)
    leave_out(store, reason)


def leave_out(what: str, reason: str) -> NoReturn:
    """End a test that is run by hand where a library cannot be had, in CI, too."""
    pytest.skip(f"{_MARK}{what}: {reason}")


def write_missing(terminal: pytest.TerminalReporter) -> None:
    """Name what was not tested, in red."""
    missing: dict[str, int] = {}
    for report in terminal.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        text = reason.removeprefix("Skipped: ")
        if text.startswith(_MARK):
            missing[text.removeprefix(_MARK)] = missing.get(text.removeprefix(_MARK), 0) + 1
    for what, number in missing.items():
        terminal.write_line(f"NOT TESTED ({number} tests): {what}", red=True, bold=True)
