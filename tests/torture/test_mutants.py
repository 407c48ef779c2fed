"""Every deliberate bug is found by the checker in a short run of real processes; and the product as it is passes.

A few run with the suite. All of them: `pytest -m torture tests/torture/test_mutants.py`.
"""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Generator
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql
from tests.servers.postgres import server_url
from tests.servers.redis import new_store_url
from tests.torture.mutants.catalogue import MUTANTS
from tests.torture.mutants.driving import drive
from tests.torture.mutants.faults import MIXES, NEED_A_LINK
from tests.torture.mutants.load import CONTROL, ROOT, environment
from tests.torture.mutants.mutant import POSTGRES, REDIS, SQLITE, SQLITE_AND_KAFKA
from tests.torture.mutants.patching import Code, Lua, MissingTarget, Sql

from holdfast.torture.checker import INVARIANTS

QUICK = ("ledger_row_not_written",)
LIMIT = 60.0  # seconds, in which a mutant must be caught; several runs may fall into that time
MOST_RUNS = 3


@pytest.fixture
def url(request, tmp_path) -> Generator[str]:
    if request.param in {SQLITE, SQLITE_AND_KAFKA}:
        yield f"sqlite:///{tmp_path}/store.db"
        return
    if request.param == REDIS:
        yield new_store_url("valkey")
        return
    name = f"test_{secrets.token_hex(6)}"
    with psycopg.connect(server_url(), autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        yield urlunsplit(urlsplit(server_url())._replace(path=f"/{name}"))
        connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def assert_caught(name: str, url: str, folder) -> None:
    mutant = MUTANTS[name]
    spent = 0.0
    for seed in range(1, MOST_RUNS + 1):
        outcome = drive(name, url, folder=folder, seed=seed, under=mutant.under)
        spent += outcome.seconds
        if mutant.is_caught(outcome.verdict.broken, is_drained=outcome.is_drained):
            assert spent <= LIMIT, f"{name} was caught only after {spent:.0f} s"
            return
        if spent > LIMIT:
            break
    pytest.fail(f"{name} was not caught by {sorted(mutant.caught_by)} in {spent:.0f} s: {mutant.bug}")


def cases(names) -> list[object]:
    return [pytest.param(name, MUTANTS[name].store, id=name) for name in names]


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("name", "url"), cases(QUICK), indirect=["url"])
def test_the_checker_finds_a_deliberate_bug(name, url, tmp_path):
    assert_caught(name, url, tmp_path)


@pytest.mark.torture
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("name", "url"), cases(sorted(MUTANTS.keys() - set(QUICK))), indirect=["url"])
def test_the_checker_finds_every_deliberate_bug(name, url, tmp_path):
    assert_caught(name, url, tmp_path)


@pytest.mark.torture
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("url", "under"),
    [(SQLITE, under) for under in MIXES if under not in NEED_A_LINK]
    + [(POSTGRES, under) for under in MIXES]
    + [(REDIS, "calm"), (REDIS, "stops")],
    indirect=["url"],
)
def test_the_product_as_it_is_passes_under_the_same_faults(url, under, tmp_path):
    outcome = drive(CONTROL, url, folder=tmp_path, seed=1, under=under)

    assert outcome.verdict.is_clean, outcome.verdict.text()


def test_there_are_many_mutants_and_each_names_invariants_that_are_checked():
    codes = {invariant.code for invariant in INVARIANTS}

    named = frozenset[str]().union(*(mutant.caught_by for mutant in MUTANTS.values()))

    assert len(MUTANTS) >= 25
    assert codes - named == set(), "no mutant names these"
    assert all(mutant.caught_by <= codes for mutant in MUTANTS.values())


@pytest.mark.timeout(300)
def test_every_mutant_finds_what_it_replaces():
    """Each in a process of its own: what is patched stays patched."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.torture.mutants.trial"], check=False, capture_output=True, text=True, cwd=ROOT
    )

    assert run.returncode == 0, run.stdout + run.stderr


def test_a_mutant_without_its_target_is_refused():
    for patch in (
        Sql(SQLITE, "no_such_statement", "a", "b"),
        Sql(SQLITE, "leave_running", "no such text", "b"),
        Lua("no_such_script", "a", "b"),
        Lua("effect", "no such text", "b"),
        Code("holdfast.model.turn:no_such_function", "a", "b"),
        Code("holdfast.model.turn:turn_of", "no such text", "b"),
        Code("holdfast.no_such_module:turn_of", "a", "b"),
    ):
        with pytest.raises(MissingTarget):
            patch.apply()


def test_a_mutant_that_would_come_too_late_is_refused():
    """The app of a run keeps what it was made of: what is replaced after that may not be in force."""
    run = subprocess.run(
        [sys.executable, "-c", "import holdfast; from tests.torture.mutants.load import load; load('worker_clock')"],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )

    assert run.returncode
    assert "MissingTarget: holdfast" in run.stderr
    assert "was there before the mutant" in run.stderr


def test_a_process_that_cannot_become_its_mutant_does_not_run():
    run = subprocess.run(
        [sys.executable, "-c", "print('ran')"], check=False, capture_output=True, env=environment("no_such_mutant")
    )

    assert run.returncode == 113
    assert b"ran" not in run.stdout
