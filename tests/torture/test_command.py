"""What `holdfast torture` refuses, tells and leaves behind."""

from __future__ import annotations

import json
import random
import sqlite3
from collections import Counter
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from holdfast import App
from holdfast.cli.main import cli
from holdfast.store.capabilities import Capabilities
from holdfast.torture.fleet import Fleet
from holdfast.torture.plan import MEANINGS, PROFILES, Fault, RunPlan, profile_of
from holdfast.torture.report import CANNOT
from holdfast.torture.streams.profiles import BROKER_FAULTS
from holdfast.torture.target import target_of
from holdfast.torture.target.jobs import STATES, joined
from holdfast.torture.work.base import QUEUES_EFFECTS
from holdfast.torture.work.catalogue import WORKS, Drawer

ABLE = Capabilities("any", "1", "full", notifies=True, joins_transactions=True, shared=True)


def torture(*options: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["torture", *options])
    return result.exit_code, result.stdout + result.stderr


async def test_a_store_that_holds_jobs_of_others_is_refused(tmp_path):
    url = f"sqlite:///{tmp_path}/jobs.db"
    app = App(url)

    @app.task
    async def theirs() -> None: ...

    async with app:
        await theirs.enqueue()

    code, said = torture("--url", url)
    assert code == 78
    assert "was not created by a torture run" in said


def test_a_database_of_another_program_is_refused(tmp_path):
    with sqlite3.connect(tmp_path / "theirs.db") as connection:
        connection.execute("create table invoice (number integer)")
    connection.close()

    code, said = torture("--url", f"sqlite:///{tmp_path}/theirs.db")

    assert code == 78
    assert "was not created by a torture run" in said


def test_a_store_in_memory_is_refused():
    code, said = torture("--url", "sqlite://")
    assert code == 78
    assert "file" in said


def test_a_given_server_and_a_started_one_exclude_each_other():
    assert torture("--url", "postgresql://localhost/x", "--server", "postgresql")[0] == 2


def test_a_history_is_never_mixed_with_another(tmp_path):
    (tmp_path / "old.jsonl").write_text("{}\n")
    code, said = torture("--url", f"sqlite:///{tmp_path}/jobs.db", "--history", str(tmp_path))
    assert code == 78
    assert "not empty" in said


def test_no_password_is_ever_told(tmp_path):
    pytest.importorskip("psycopg")
    code, said = torture("--url", "postgresql://me:hunter2@127.0.0.1:1/nowhere")
    assert code != 0
    assert "hunter2" not in said


def test_the_release_profile_reaches_what_a_release_must_show():
    postgres, sqlite = profile_of("release", one_writer=False), profile_of("release", one_writer=True)
    assert postgres.jobs == 1_000_000
    assert postgres.faults[Fault.KILL] + postgres.faults[Fault.FAILPOINT] >= 500
    assert postgres.faults[Fault.STOP] >= 200
    assert postgres.faults[Fault.CUT] + postgres.faults[Fault.COMMIT] >= 500
    assert postgres.faults[Fault.COMMIT] >= 100
    assert postgres.faults[Fault.RESTART] >= 20
    assert sqlite.jobs == 300_000
    assert sqlite.faults[Fault.KILL] + sqlite.faults[Fault.FAILPOINT] >= 300
    assert sqlite.faults[Fault.STOP] >= 100


def test_a_broker_of_the_release_profile_is_killed_ten_times_and_stopped_besides():
    faults = BROKER_FAULTS["release"]
    assert faults[Fault.BROKER] >= 10
    assert faults[Fault.BROKER_STOP] >= 1
    assert set(BROKER_FAULTS) == set(PROFILES)


def test_every_profile_names_only_faults_that_are_explained():
    for name in PROFILES:
        for one_writer in (True, False):
            assert set(profile_of(name, one_writer=one_writer).faults) <= set(MEANINGS)


def test_the_same_seed_draws_the_same():
    plans = [RunPlan(name="smoke", profile=profile_of("smoke", one_writer=True), seed=7) for _ in range(2)]
    first, second = (plan.chance("nemesis", Fault.KILL).random() for plan in plans)
    assert first == second
    drawers = [Drawer(random.Random(7), 0.5, jobs=1000, capabilities=ABLE) for _ in range(2)]
    drawn = [[drawer.draw().name for _ in range(50)] for drawer in drawers]
    assert drawn[0] == drawn[1]


def test_work_is_drawn_only_on_a_store_that_has_what_it_needs():
    alone = msgspec.structs.replace(ABLE, joins_transactions=False)
    drawer = Drawer(random.Random(3), 1.0, jobs=100_000, capabilities=alone)
    drawn = {drawer.draw().name for _ in range(20_000)}
    assert drawn == {work.name for work in WORKS if not work.needs}
    assert "transfer_in_batches" not in drawn


def test_every_kind_of_work_is_drawn_and_the_dear_ones_within_their_bounds():
    drawer = Drawer(random.Random(3), 1.0, jobs=100_000, capabilities=ABLE)
    drawn = Counter(drawer.draw().name for _ in range(20_000))
    assert set(drawn) == {work.name for work in WORKS if QUEUES_EFFECTS.isdisjoint(work.needs)}
    for work in WORKS:
        if work.most is not None:
            assert drawn[work.name] <= work.most


def test_the_report_says_what_it_cannot_show():
    text = " ".join(CANNOT)
    assert "3/n" in text
    assert "fsync" in text


async def test_the_target_reads_what_the_store_holds(tmp_path):
    target = target_of(f"sqlite:///{tmp_path}/jobs.db")
    target.create()
    app = App(target.url)

    @app.task(queue="holdfast-torture")
    async def ours() -> None: ...

    async with app:
        done = await ours.enqueue()
        await ours.options(delay=60).enqueue()
        gone = await ours.options(delay=60).enqueue()
        await gone.cancel()
        await app.drain("holdfast-torture")
    target.prepare()

    assert {state: count for state, count in target.jobs.counts().items() if count} == {
        "completed": 1,
        "scheduled": 1,
        "cancelled": 1,
    }
    rows = {row.job: row for row in target.jobs.rows()}
    assert rows[done.id].state == "completed"
    assert rows[done.id].completions == 1
    assert rows[gone.id].state == "cancelled"
    assert target.leftovers().integrity == ""
    assert set(STATES) == set(target.jobs.counts())
    target.require_own()


def test_attempts_are_joined_to_their_jobs_in_one_pass():
    jobs: list[tuple[Any, ...]] = [
        ("a", "failed", 2, 5, 1, 0, None, 0, 0, 0, 9, "x", json.dumps({"call": "c"}), "q", "t")
    ]
    jobs += [("b", "ready", 0, 5, 2, 0, None, 0, 0, 0, None, None, None, "q", "t")]
    attempts = [(0, 1, "lost", "w", 1, 2, None), (1, 1, "retried", "w", 1, 2, "E"), (1, 2, "failed", "w", 3, 4, "E")]

    first, second = joined(iter(jobs), iter(attempts))

    assert [attempt.outcome for attempt in first.attempts] == ["retried", "failed"]
    assert first.call == "c"
    assert second.attempts == ()


def test_workers_that_cannot_work_end_the_run_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(Fleet, "module", "there_is_no_such_module")
    monkeypatch.setattr("holdfast.torture.fleet._MOST_QUICK", 2)
    code, said = torture("--url", f"sqlite:///{tmp_path / 'store.db'}", "--jobs", "100", "--seed", "1")
    assert code == 4
    assert "workers exit as soon as they have started" in said
    assert "the history until then is in" in said
    assert ".log" in said
