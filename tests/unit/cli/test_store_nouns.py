"""Queues, leases, workers, the schema and the doctor."""

from __future__ import annotations

import json
import sqlite3
from datetime import timedelta

import pytest
from tests.unit.cli.conftest import HOSTILE, SHOWN

from holdfast.app.admin import Jobs
from holdfast.errors import JobNotFound
from holdfast.store.values import JobDetails, WorkerHeartbeat


def _beat(shop, worker_id="w1", lease=30.0, queues=None):
    heartbeat = WorkerHeartbeat(worker_id, "host", 1, queues, 10, timedelta(seconds=lease), 2)

    async def tell(backend):
        extender = backend.extender()
        extender.heartbeat(heartbeat)
        extender.close()

    shop.within(tell)


def _later(shop, tmp_path, seconds):
    """Let time pass for workers and leases, by moving what they told into the past."""
    with sqlite3.connect(tmp_path / "jobs.db") as connection:
        connection.execute("update holdfast_running set lease_until = lease_until - ?", (seconds * 1_000_000,))
    connection.close()


# --- queues -----------------------------------------------------------------------------------------------------------


def test_queues_are_listed_with_their_counts(shop):
    shop.enqueue()
    shop.enqueue("charge", "--arg", "order_id=7", "--delay", "5m")
    (queue,) = shop.json("queue", "list")["queues"]
    assert queue.pop("oldest_ready_seconds") >= 0
    assert 2 / 5 <= queue.pop("enqueued_per_minute") <= 2 / 4
    assert queue == {
        "name": "orders", "state": "open", "ready": 1, "scheduled": 1, "blocked": 0, "running": 0, "failed": 0,
        "completed": 0, "completed_per_minute": 0, "failed_per_minute": 0, "limit": None,
    }  # fmt: skip
    assert shop.run("queue", "list").stdout.splitlines()[1].startswith("orders\topen\t1\t1\t0\t0\t0\t0\t")


def test_a_queue_shows_what_was_completed_and_how_fast(shop):
    for _ in range(3):
        shop.enqueue()
    shop.complete()
    shop.complete()
    shop.fail()
    (queue,) = shop.json("queue", "list")["queues"]
    assert (queue["ready"], queue["completed"], queue["failed"]) == (0, 2, 1)
    assert 2 / 5 <= queue["completed_per_minute"] <= 2 / 4
    assert 1 / 5 <= queue["failed_per_minute"] <= 1 / 4
    heading, _, row = shop.screen("queue", "list")
    assert heading.split() == ["queue", "state", "ready", "running", "failed", "completed", "/5", "min"]
    assert row.split() == ["orders", "open", "0", "0", "1", "2", "2"]


def test_a_queue_is_paused_and_resumed_and_says_if_it_was_so_already(shop):
    shop.enqueue()
    assert shop.run("queue", "pause", "orders").stdout == "orders paused\n"
    assert shop.run("queue", "pause", "orders").stdout == "orders was already paused\n"
    assert shop.json("queue", "list")["queues"][0]["state"] == "paused"
    assert shop.run("queue", "resume", "orders").stdout == "orders resumed\n"
    assert shop.run("queue", "resume", "orders").stdout == "orders was not paused\n"


def test_pausing_a_queue_that_nobody_knows_is_done_with_a_warning(shop):
    shop.enqueue()
    assert "no job was ever enqueued to order" in shop.run("queue", "pause", "order").stderr


def test_a_task_is_paused_and_resumed_and_says_if_it_was_so_already(shop):
    shop.enqueue()
    assert shop.run("task", "pause", "charge").stdout == "charge paused\n"
    assert shop.run("task", "pause", "charge").stdout == "charge was already paused\n"
    (view,) = shop.json("task", "list")["tasks"]
    assert (view["name"], view["state"], view["ready"]) == ("charge", "paused", 1)
    assert _checks(shop)[1]["paused tasks"]["remedy"] == "`holdfast task resume charge` resumes it."
    assert shop.run("task", "resume", "charge").stdout == "charge resumed\n"
    assert shop.run("task", "resume", "charge").stdout == "charge was not paused\n"
    assert shop.run("task", "list").stdout.splitlines()[-1].split()[:3] == ["charge", "open", "1"]
    assert "did you mean charge?" in shop.run("task", "pause", "charg").stderr


def test_a_queue_and_a_task_are_limited_and_set_free(shop):
    shop.enqueue()
    limited = shop.run("queue", "limit", "orders", "--running", "5", "--rate", "100/m", "--burst", "10")
    assert limited.stdout == "orders is limited: 5 running, 100/m burst 10\n"
    assert shop.json("queue", "list")["queues"][0]["limit"] == {"running": 5, "rate": "100/m", "burst": 10}
    assert shop.run("task", "limit", "charge", "--rate", "1/10s").stdout == "charge is limited: 1/10s\n"
    assert "1/10s" in shop.run("task", "list").stdout.splitlines()[-1]
    each = shop.run("task", "limit", "charge", "--per-key", "--running", "3")
    assert each.stdout == "charge is limited per key: 3 running\n"
    (task,) = shop.json("task", "list")["tasks"]
    assert (task["limit"]["rate"], task["key_limit"]["running"]) == ("1/10s", 3)
    assert shop.run("task", "limit", "charge", "--per-key", "--none").stdout == "charge has no limit per key\n"
    assert shop.run("queue", "limit", "orders", "--none").stdout == "orders has no limit\n"
    assert shop.json("queue", "list")["queues"][0]["limit"] is None


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ([], 2, "Add --running N"),
        (["--none", "--running", "1"], 2, "leave out"),
        (["--running", "0"], 78, "pause the queue"),
        (["--rate", "often"], 78, "100/m"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused_with_the_remedy(shop, options, code, said):
    shop.enqueue()
    refused = shop.run("queue", "limit", "orders", *options, code=code)
    assert said in refused.stderr


# --- leases -----------------------------------------------------------------------------------------------------------


def test_leases_are_listed_and_expired_ones_alone_when_asked(shop, tmp_path):
    job_id = shop.enqueue()
    shop.claim()
    (lease,) = shop.json("lease", "list")["leases"]
    assert (lease["job_id"], lease["worker_id"], lease["attempt"]) == (job_id, "w1", 1)
    assert shop.json("lease", "list", "--expired")["leases"] == []
    assert "No expired leases." in shop.run("lease", "reset", "--expired").stderr
    _later(shop, tmp_path, 40)
    (lease,) = shop.json("lease", "list", "--expired")["leases"]
    assert lease["expires_in_seconds"] < 0


def test_a_reset_takes_a_running_jobs_lease_away(shop):
    job_id = shop.enqueue()
    shop.claim()
    assert shop.run("lease", "reset", job_id).stdout == f"{job_id} reset\n"
    assert shop.json("job", "show", job_id)["state"] == "ready"
    assert "is not running" in shop.run("lease", "reset", job_id, code=1).stderr


def test_a_reset_of_a_job_that_was_to_be_cancelled_says_that_it_is_cancelled(shop):
    job_id = shop.enqueue()
    shop.claim()
    shop.run("job", "cancel", job_id, "--reason", "ordered twice")
    told = shop.run("lease", "reset", job_id).stdout
    assert told == f"{job_id} reset; it will not run again: it was cancelled by an earlier request (ordered twice)\n"
    assert shop.json("job", "show", job_id)["state"] == "cancelled"


def test_a_reset_job_that_was_pruned_before_it_could_be_looked_at_is_told_as_reset(shop, monkeypatch):
    job_id = shop.enqueue()
    shop.claim()

    async def gone(jobs: Jobs, job_id: str) -> JobDetails:
        raise JobNotFound(f"no job has the id {job_id}")

    monkeypatch.setattr(Jobs, "show", gone)
    assert shop.run("lease", "reset", job_id).stdout == f"{job_id} reset\n"


def test_expired_leases_are_taken_away_and_living_ones_left(shop, tmp_path):
    ids = [shop.enqueue() for _ in range(3)]
    shop.claim()
    shop.claim()
    _later(shop, tmp_path, 40)
    shop.claim(worker_id="alive")
    refused = shop.run("lease", "reset", "--expired", code=2)
    assert "Reset 2 expired leases?" in refused.stderr
    assert len(shop.run("lease", "reset", "--expired", "--yes").stdout.splitlines()) == 2
    (left,) = shop.json("lease", "list")["leases"]
    assert left["worker_id"] == "alive"
    assert left["job_id"] in ids


@pytest.mark.parametrize("words", [(), ("01", "--expired")])
def test_a_reset_that_says_two_things_or_nothing_is_refused(shop, words):
    shop.run("lease", "reset", *words, code=2)


def test_hostile_progress_is_shown_as_visible_escapes(shop):
    shop.enqueue()
    job = shop.claim()
    shop.within(lambda backend: backend.jobs.progress(job.lease, 1, HOSTILE))
    assert f"1 % {SHOWN}" in shop.run("lease", "list").stdout


# --- workers ----------------------------------------------------------------------------------------------------------


def test_workers_are_listed_and_silent_ones_marked(shop):
    shop.run("schema", "install")
    _beat(shop, "alive", queues=("orders", "mails"))
    _beat(shop, "dead", lease=0.0)
    workers = {worker["worker_id"]: worker for worker in shop.json("worker", "list")["workers"]}
    assert workers["alive"]["state"] == "live"
    assert workers["alive"]["queues"] == ["orders", "mails"]
    assert workers["dead"]["state"] == "silent"
    assert workers["dead"]["silent_seconds"] > workers["dead"]["lease_seconds"] == 0
    rows = shop.run("worker", "list").stdout.splitlines()
    assert [row.split("\t")[1] for row in rows[1:] if row.startswith("alive")] == ["live"]
    assert [row.split("\t")[1] for row in rows[1:] if row.startswith("dead")] == ["silent"]


# --- schema -----------------------------------------------------------------------------------------------------------


def test_the_tables_are_installed_checked_and_upgraded_repeatedly(shop, tmp_path):
    for _ in range(2):
        assert f"sqlite:///{tmp_path}/jobs.db have version" in shop.run("schema", "install").stdout
    shop.run("schema", "check")
    shop.run("schema", "upgrade")
    assert (tmp_path / "jobs.db").stat().st_mode & 0o777 == 0o600


def test_tables_of_a_newer_version_are_refused_with_the_remedy(shop, tmp_path):
    shop.run("schema", "install")
    with sqlite3.connect(tmp_path / "jobs.db") as connection:
        connection.execute("update holdfast_meta set schema_version = 999")
    connection.close()
    assert "upgrade the holdfast package" in shop.run("schema", "check", code=1).stderr
    for words in (("schema", "install"), ("schema", "upgrade"), ("job", "list")):
        assert "upgrade the holdfast package" in shop.run(*words, code=78).stderr


def test_the_script_is_shown_without_touching_the_store(shop, tmp_path):
    assert "create table" in shop.run("schema", "show").stdout.lower()
    assert list(tmp_path.iterdir()) == []


# --- the doctor -------------------------------------------------------------------------------------------------------


def _checks(shop, code=0):
    report = json.loads(shop.run("doctor", "--json", code=code).stdout)
    return report["verdict"], {check["check"]: check for check in report["checks"]}


def test_the_doctor_of_a_new_store_finds_nothing_bad(shop):
    shop.run("schema", "install")
    verdict, checks = _checks(shop)
    assert verdict in {"ok", "warn"}
    assert set(checks) == {
        "store", "version", "durability", "schema", "clock", "ready jobs", "tasks", "scheduled jobs", "paused queues",
        "paused tasks", "schedules", "expired leases", "workers", "consumers",
    }  # fmt: skip
    assert all(check["verdict"] == "ok" for name, check in checks.items() if name != "version")
    assert "synchronous=FULL" in checks["durability"]["finding"]


def test_the_doctor_warns_of_work_that_no_worker_serves(shop):
    shop.enqueue()
    _beat(shop, queues=("mails",))
    _, checks = _checks(shop)
    assert checks["ready jobs"]["verdict"] == "warn"
    assert "No worker serves orders" in checks["ready jobs"]["remedy"]
    _beat(shop, queues=("orders",))
    assert _checks(shop)[1]["ready jobs"]["verdict"] == "ok"


def test_the_doctor_warns_of_scheduled_jobs_that_nobody_will_see_when_they_are_due(shop):
    shop.enqueue("charge", "--arg", "order_id=7", "--delay", "1h")
    _beat(shop, queues=("mails",))
    _, checks = _checks(shop)
    assert (checks["ready jobs"]["verdict"], checks["scheduled jobs"]["verdict"]) == ("ok", "warn")
    assert "No worker serves orders" in checks["scheduled jobs"]["remedy"]
    _beat(shop, queues=("orders",))
    assert _checks(shop)[1]["scheduled jobs"]["verdict"] == "ok"


def test_the_doctor_warns_of_paused_queues_and_silent_workers(shop):
    shop.enqueue()
    shop.run("queue", "pause", "orders")
    _beat(shop, "dead", lease=0.0)
    verdict, checks = _checks(shop)
    assert verdict == "warn"
    assert checks["paused queues"]["finding"] == "orders"
    assert "dead" in checks["workers"]["finding"]


def test_leases_that_nobody_rescues_are_bad_and_just_expired_ones_a_warning(shop, tmp_path):
    shop.enqueue()
    shop.claim()
    _later(shop, tmp_path, 40)
    assert _checks(shop)[1]["expired leases"]["verdict"] == "warn"
    _later(shop, tmp_path, 100)
    verdict, checks = _checks(shop, code=1)
    assert (verdict, checks["expired leases"]["verdict"]) == ("bad", "bad")


def test_a_file_that_is_no_database_is_bad_and_not_a_crash(shop, tmp_path):
    (tmp_path / "jobs.db").write_bytes(b"hello " * 1000)
    verdict, checks = _checks(shop, code=1)
    assert verdict == "bad"
    assert "not a SQLite database" in checks["store"]["finding"]
    assert "not a SQLite database" in shop.run("job", "list", code=69).stderr
