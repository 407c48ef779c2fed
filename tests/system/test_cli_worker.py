"""What a worker says about options that do not fit its app."""

from __future__ import annotations

import pytest
from tests.system.cli_program import Cli

BOTH = """
from holdfast import App, Event

app = App("sqlite:///shop.db")

@app.task
async def charge(order_id: int) -> None:
    print("charged", flush=True)

@app.consumer("billing", category="orders")
async def bill(event: Event) -> None:
    print("billed", flush=True)
"""


@pytest.fixture
def cli(tmp_path) -> Cli:
    return Cli(tmp_path)


@pytest.fixture
def both(cli):
    """An app with a task and a consumer."""
    (cli.directory / "both_of_test.py").write_text(BOTH, encoding="utf-8")
    cli.app = ("--app", "both_of_test:app", "--app-dir", ".")
    return cli


def _warnings(done):
    return [text for text in done.stderr.splitlines() if text.startswith("Warning: ")]


def test_until_empty_warns_that_the_consumers_of_the_app_do_not_run(both):
    both.enqueue("charge", "order_id=7")
    done = both.run("worker", "run", *both.app, "--until-empty")
    (warning,) = [text for text in done.stderr.splitlines() if "until_empty runs only tasks" in text]
    assert warning.endswith("the consumers billing do not run here")
    assert done.stdout == "charged\n"


def test_options_for_consumers_warn_where_until_empty_runs_none(both):
    done = both.run("worker", "run", *both.app, "--until-empty", "--node-id", "anna")
    assert "Warning: --node-id has no effect: with --until-empty no consumers run" in _warnings(done)


def test_options_for_consumers_warn_where_the_app_has_none(cli):
    for words, subject in (
        (("--node-id", "anna"), "--node-id has"),
        (("--recovery", "5s"), "--recovery has"),
        (("--node-id", "anna", "--recovery", "5s"), "--node-id and --recovery have"),
    ):
        done = cli.run("worker", "run", *cli.app, "--until-empty", *words)
        assert _warnings(done) == [f"Warning: {subject} no effect: the app has no consumers"]


def test_a_worker_whose_options_fit_warns_of_nothing(cli):
    assert _warnings(cli.run("worker", "run", *cli.app, "--until-empty")) == []
