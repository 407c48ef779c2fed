"""What `worker run` refuses before anything starts; what it warns of is seen in `tests/system/test_cli_worker.py`."""

from __future__ import annotations

CONSUMING = ("--app", "tests.unit.cli.sample_app:consuming")


def test_until_empty_runs_tasks_alone_so_an_app_of_consumers_alone_is_refused(shop, tmp_path):
    told = shop.run("worker", "run", *CONSUMING, "--until-empty", code=78).stderr.splitlines()
    assert told[-2:] == [
        "Error: --until-empty runs only tasks, and this app has only consumers",
        "Leave it out: consumers wait for events until the worker is stopped.",
    ]
    assert list(tmp_path.iterdir()) == []


def test_the_help_says_that_until_empty_runs_tasks_alone(shop):
    assert "only tasks, no consumers" in " ".join(shop.run("worker", "run", "--help").stdout.split())
