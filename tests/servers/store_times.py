"""How long the tests of each store took: one line for each at the end of a run.

A store is recognised by a parameter of the test, then by the name of its folder or file. The time is that of set-up,
test and teardown, summed over all workers: with two workers a run takes about half of the sum.
"""

from __future__ import annotations

import re
from collections import defaultdict

import pytest

NO_STORE = "no store"
_PARAMETERS = {
    "kafka": (r"sqlite\+kafka", r"postgres\+kafka", r"mariadb\+kafka"),
    "sqlite": ("sqlite", "sqlite-memory"),
    "postgresql": ("postgres", "postgresql"),
    "valkey": ("valkey",),
    "redis": ("redis",),
    "mariadb": ("mariadb",),
    "mysql": ("mysql",),
    "reference model": ("reference",),
}
_PLACES = {
    "sqlite": "sqlite",
    "postgres": "postgresql",
    "redis": "valkey",
    "mysql": "mariadb",
    "kafka": "kafka",
    "interleavings": "postgresql",
    "app": "sqlite",
}


def store_of(nodeid: str) -> str:
    """Return the store that a test runs on."""
    path, _, name = nodeid.partition("::")
    parameters = re.split(r"[\[\]]", name)[1] if "[" in name else ""
    for store, names in _PARAMETERS.items():
        if any(re.search(rf"(^|-){each}($|-)", parameters) for each in names):
            return store
    places = re.split(r"[/_.]", path)
    return next((store for place, store in _PLACES.items() if place in places), NO_STORE)


def times(reports: list[pytest.TestReport]) -> dict[str, tuple[float, int]]:
    """Return the seconds and the number of the tests of each store, those with the most seconds first."""
    seconds: defaultdict[str, float] = defaultdict(float)
    tests: defaultdict[str, set[str]] = defaultdict(set)
    for report in reports:
        store = store_of(report.nodeid)
        seconds[store] += report.duration
        tests[store].add(report.nodeid)
    return {store: (seconds[store], len(tests[store])) for store in sorted(seconds, key=lambda each: -seconds[each])}


def write_times(terminal: pytest.TerminalReporter) -> None:
    """Write a line for each store, if more than one had tests."""
    found = [report for group in terminal.stats.values() for report in group if isinstance(report, pytest.TestReport)]
    taken = times(found)
    if len(taken) > 1:
        for store, (seconds, tests) in taken.items():
            terminal.write_line(f"{seconds:8.1f} s in {tests:,} tests: {store}")
