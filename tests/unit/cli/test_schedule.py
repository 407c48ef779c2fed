"""`holdfast schedule`, and what `doctor` says of schedules."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from rich.cells import cell_len
from tests.unit.cli.conftest import APP, Shop


def add(shop: Shop, name: str = "nightly", *more: str) -> str:
    when = more or ("--cron", "30 2 * * *", "--timezone", "Europe/Vienna")
    return shop.run("schedule", "add", name, "charge", *APP, "--arg", "order_id=7", *when).stdout


def age(tmp_path: Path, hours: int) -> None:
    """Let time pass for schedules, by moving their next times into the past."""
    with sqlite3.connect(tmp_path / "jobs.db") as connection:
        connection.execute("update holdfast_schedule set next_at = :now - :by", {"now": 1, "by": hours})
    connection.close()


def test_a_schedule_is_added_listed_and_removed(shop):
    shop.run("schema", "install")
    assert "No schedules" in shop.run("schedule", "list").stderr
    assert add(shop) == "nightly added\n"
    assert add(shop, "nightly", "--every", "5m") == "nightly replaced\n"
    (found,) = shop.json("schedule", "list")["schedules"]
    assert (found["name"], found["state"], found["every_seconds"], found["task"]) == (
        "nightly",
        "active",
        300,
        "charge",
    )
    assert found["last_at"] is None
    assert found["next_at"].endswith("Z")
    assert shop.run("schedule", "list").stdout.splitlines()[1].startswith("nightly\tevery 0:05:00\tactive\t")
    assert shop.run("schedule", "remove", "nightly").stdout == "nightly removed\n"
    assert "there is no schedule" in shop.run("schedule", "remove", "nightly", code=1).stderr


def test_a_schedule_is_paused_and_resumed(shop):
    add(shop)
    assert shop.run("schedule", "pause", "nightly").stdout == "nightly paused\n"
    assert shop.run("schedule", "pause", "nightly").stdout == "nightly was already paused\n"
    assert shop.json("schedule", "list")["schedules"][0]["state"] == "paused"
    assert shop.run("schedule", "resume", "nightly").stdout == "nightly resumed\n"
    assert shop.run("schedule", "resume", "nightly").stdout == "nightly was not paused\n"
    assert "there is no schedule 'other'" in shop.run("schedule", "pause", "other", code=1).stderr


def test_run_enqueues_a_job_now(shop):
    add(shop)
    job_id = shop.run("schedule", "run", "nightly").stdout.strip()
    assert shop.json("job", "show", job_id)["task"] == "charge"


def test_its_jobs_have_the_limit_key_of_the_schedule(shop):
    add(shop, "nightly", "--every", "5m", "--limit-key", "customer-3")
    job_id = shop.run("schedule", "run", "nightly").stdout.strip()
    assert shop.json("job", "show", job_id)["limit_key"] == "customer-3"


def test_show_names_times_and_job(shop):
    add(shop, "nightly", "--cron", "0 9 * * *", "--missed", "all", "--window", "2h", "--jitter", "30s")
    text = shop.run("schedule", "show", "nightly").stdout
    assert "cron\t0 9 * * *\n" in text
    assert "missed\tall\n" in text
    document = shop.json("schedule", "show", "nightly")
    assert (document["window_seconds"], document["jitter_seconds"]) == (7200, 30)


def test_wrong_input_is_refused_with_the_remedy(shop):
    assert (
        "five fields"
        in shop.run("schedule", "add", "x", "charge", *APP, "--cron", "daily", "--arg", "order_id=1", code=78).stderr
    )
    assert "either" in shop.run("schedule", "add", "x", "charge", *APP, "--arg", "order_id=1", code=78).stderr
    shop.run("schedule", "add", "x", "nothing", *APP, "--cron", "@daily", code=2)


def test_the_list_fits_eighty_columns(shop):
    add(
        shop,
        "invoices-of-all-customers-in-europe",
        "--cron",
        "0,15,30,45 8-18 * * MON-FRI",
        "--timezone",
        "Europe/Vienna",
    )
    add(shop, "nightly")
    lines = shop.screen("schedule", "list")
    assert all(cell_len(line) <= 80 for line in lines)
    assert len(lines) == 3 or (len(lines) == 4 and not lines[1].strip("─━ "))
    assert "in " in lines[-1]


def test_doctor_warns_of_schedules_that_no_worker_fires(shop, tmp_path):
    add(shop)
    assert verdict(shop) == "ok"
    age(tmp_path, 1)
    assert verdict(shop) == "warn"
    assert shop.json("schedule", "list")["schedules"][0]["state"] == "overdue"


def verdict(shop: Shop) -> str:
    (found,) = [check for check in shop.json("doctor")["checks"] if check["check"] == "schedules"]
    return str(found["verdict"])
