"""A very small run of the benchmarks through the real command."""

from __future__ import annotations

import json
import signal
import time

import pytest
from tests.system.cli_program import SOON, Cli

SMALL = ("--jobs", "200", "--repeats", "1")


@pytest.fixture
def cli(tmp_path) -> Cli:
    return Cli(tmp_path)


def test_a_run_in_a_pipe_tells_its_records_and_leaves_nothing_behind(cli):
    before = sorted(cli.directory.iterdir())
    lines = cli.run("bench", *SMALL, "--only", "enqueue.bulk", "--only", "drain.one").stdout.splitlines()
    assert [line.split("\t")[:2] for line in lines] == [
        ["name", "store"],
        ["enqueue.bulk", "sqlite"],
        ["drain.one", "sqlite"],
        ["drain.one.client_cpu", "sqlite"],
    ]
    assert sorted(cli.directory.iterdir()) == before


def test_a_run_never_touches_the_store_that_the_url_names(cli):
    job_id = cli.enqueue("charge", "order_id=7")
    before = (cli.directory / "shop.db").read_bytes()
    document = json.loads(cli.run("bench", *SMALL, "--only", "enqueue.one", "--json").stdout)
    assert [record["name"] for record in document["records"]] == ["enqueue.one"]
    assert document["machine"]["store"].startswith("sqlite")
    assert (cli.directory / "shop.db").read_bytes() == before
    assert [job["id"] for job in json.loads(cli.run("job", "list", "--json").stdout)["jobs"]] == [job_id]


def test_on_a_terminal_the_figures_are_a_table_with_their_aims(cli):
    shown = cli.in_terminal("bench", *SMALL, "--only", "enqueue.bulk", width=120)
    assert "enqueue.bulk" in shown
    assert "ratio ≥ 0.5" in shown
    assert "200 jobs; sqlite" in shown


@pytest.mark.parametrize(("number", "hears"), [(signal.SIGINT, True), (signal.SIGTERM, True), (signal.SIGTERM, False)])
def test_a_run_that_is_stopped_removes_what_it_has_made(cli, number, hears):
    with cli.started("bench", "--jobs", "50000", "--only", "drain.one", hears_interrupts=hears) as program:
        give_up = time.monotonic() + SOON
        while not list(cli.directory.glob("holdfast-bench-*/bench.db")):
            assert time.monotonic() < give_up
            time.sleep(0.02)
        program.send_signal(number)
        assert program.wait(SOON) == 130
    assert list(cli.directory.glob("holdfast-bench-*")) == []
