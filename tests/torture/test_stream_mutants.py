"""Every deliberate bug of streams is found, by the checker in a short run or by the conformance suite.

A few run with the suite. All of them: `pytest -m torture tests/torture/test_stream_mutants.py`.
"""

from __future__ import annotations

import re

import pytest
from tests.servers.kafka import new_prefix
from tests.torture.mutants.mutant import POSTGRES, SQLITE, SQLITE_AND_KAFKA
from tests.torture.mutants.stream_driving import conform, drive_streams
from tests.torture.mutants.streams import CONFORMANCE, STREAM_MUTANTS
from tests.torture.test_mutants import url  # noqa: F401 - the fixture

from holdfast.torture.streams.checker import STREAM_INVARIANTS

CONFORMING = sorted(name for name, mutant in STREAM_MUTANTS.items() if mutant.caught_by == {CONFORMANCE})
RUNNING = sorted(STREAM_MUTANTS.keys() - set(CONFORMING))
QUICK = ("epoch_not_raised",)
QUICK_CONFORMING = ("commit_without_generation", "seize_from_the_living")
"""One of the positions and one of the leases; `make test-slow` shows the same of the others."""
MOST_RUNS = 3


def cases(names) -> list[object]:
    return [pytest.param(name, STREAM_MUTANTS[name].store, id=name) for name in names]


def assert_caught(name: str, store: str, folder) -> None:
    mutant = STREAM_MUTANTS[name]
    events = new_prefix() if mutant.store == SQLITE_AND_KAFKA else None
    for seed in range(1, MOST_RUNS + 1):
        report = drive_streams(name, store, folder=folder, seed=seed, under=mutant.under, events=events)
        assert report.verdict is not None
        if not mutant.caught_by.isdisjoint(report.verdict.broken):
            return
    pytest.fail(f"{name} was not caught by {sorted(mutant.caught_by)}: {mutant.bug}")


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK_CONFORMING else pytest.mark.slow) for name in CONFORMING],
)
def test_the_conformance_suite_finds_a_deliberate_bug(name):
    run = conform(STREAM_MUTANTS[name])

    if "skipped" in run.stdout and "failed" not in run.stdout:
        pytest.skip("its store is not here")
    assert run.returncode == 1, run.stdout + run.stderr
    assert re.search(r"\d+ failed", run.stdout), run.stdout


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize(("name", "url"), cases(QUICK), indirect=["url"])
def test_the_checker_finds_a_deliberate_bug_of_streams(name, url, tmp_path):  # noqa: F811
    assert_caught(name, url, tmp_path)


@pytest.mark.torture
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("name", "url"), cases(sorted(set(RUNNING) - set(QUICK))), indirect=["url"])
def test_the_checker_finds_every_deliberate_bug_of_streams(name, url, tmp_path):  # noqa: F811
    assert_caught(name, url, tmp_path)


@pytest.mark.torture
@pytest.mark.timeout(300)
@pytest.mark.parametrize("under", ["kills", "terms", "stops"])
@pytest.mark.parametrize("url", [SQLITE, POSTGRES, SQLITE_AND_KAFKA], indirect=True)
def test_streams_as_they_are_pass_under_the_same_faults(url, under, request, tmp_path):  # noqa: F811
    events = new_prefix() if SQLITE_AND_KAFKA in request.node.name else None
    report = drive_streams("none", url, folder=tmp_path, seed=1, under=under, events=events)

    assert report.is_clean, report.violations


def test_there_are_mutants_of_streams_and_each_names_what_catches_it():
    codes = {invariant.code for invariant in STREAM_INVARIANTS} | {CONFORMANCE}

    assert len(STREAM_MUTANTS) >= 6
    assert all(mutant.caught_by <= codes for mutant in STREAM_MUTANTS.values())
