"""What shows that jobs were done: counts, used attempts, calls, short ids and watched lists."""

from __future__ import annotations

import pytest

from holdfast.reports.job_text import call_of


def test_every_command_takes_the_short_id_that_lists_show(shop):
    job_id = shop.enqueue()
    shop.enqueue()
    (listed,) = [job for job in shop.json("job", "list")["jobs"] if job["id"] == job_id]
    short = f"{listed['seq']}.{job_id[-4:]}"
    assert shop.json("job", "show", short)["id"] == job_id
    assert shop.run("job", "cancel", short).stdout == f"{job_id} cancelled\n"
    assert shop.run("job", "retry", short).stdout == f"{job_id} retried\n"
    shop.claim()
    shop.claim()
    assert shop.run("lease", "reset", short).stdout == f"{job_id} reset\n"
    wrong = f"{listed['seq']}.{int(job_id[-4:], 16) ^ 1:04x}"
    assert f"there is no job {wrong} in this store" in shop.run("job", "show", wrong, code=1).stderr


def test_jobs_are_counted_by_queue_and_task(shop):
    for _ in range(3):
        shop.enqueue()
    shop.enqueue("bill", "--arg", 'on="2026-11-16"', "--arg", 'amount="7"')
    shop.complete()
    shop.fail()
    counted = shop.json("job", "counts")
    assert counted["states"] == {"ready": 2, "scheduled": 0, "blocked": 0, "running": 0, "failed": 1}
    by_task = {count["task"]: count for count in counted["counts"]}
    assert by_task["charge"]["enqueued"] == 3
    assert sum(count["completed"] for count in by_task.values()) == 1
    assert sum(count["failed"] for count in by_task.values()) == 1
    (charged,) = shop.json("job", "counts", "--task", "charge", "--since", "1h")["counts"]
    assert charged == by_task["charge"]
    assert charged["mean_run_seconds"] >= 0
    assert shop.json("job", "counts", "--queue", "nowhere")["counts"] == []
    said = shop.run("job", "counts")
    (row,) = [line.split("\t") for line in said.stdout.splitlines() if "\tcharge\t" in line]
    assert row[2] == "3"
    assert "Now: 2 ready" in said.stderr


def test_a_call_is_shown_as_it_is_written_in_python(shop):
    job_id = shop.enqueue("charge", "--arg", "order_id=7", "--arg", 'note="by hand"')
    assert "call\tcharge(order_id=7, note='by hand')" in shop.run("job", "show", job_id, "--show-args").stdout
    assert "by hand" not in shop.run("job", "show", job_id).output
    assert call_of("charge", '[[1,"a"],{}]') == "charge(1, 'a')"
    assert call_of("charge", "damaged") is None


def test_the_used_attempts_are_shown_beside_the_count(shop):
    job_id = shop.enqueue("charge", "--arg", "order_id=7", "--max-attempts", "3")
    shop.fail()
    shop.run("job", "retry", job_id)
    shop.claim()
    assert "attempt\t2, used 1 of 3" in shop.run("job", "show", job_id).stdout
    assert shop.json("job", "show", job_id)["used_attempts"] == 1


@pytest.mark.parametrize("words", [("job", "list"), ("queue", "list")])
def test_a_watch_needs_a_terminal(shop, words):
    shop.enqueue()
    assert "leave it out in a pipe" in shop.run(*words, "--watch", code=2).stderr
    assert "leave it out with --json" in shop.run(*words, "--watch", "5", "--json", code=2).stderr
