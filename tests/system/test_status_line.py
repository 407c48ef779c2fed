"""The live status line of `worker run`, in a pseudo-terminal and in a pipe."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from tests.system.cli_program import Cli

CONSUMER = """
from holdfast import App, Event

app = App("sqlite:///shop.db")

@app.consumer("billing", category="orders")
async def bill(event: Event) -> None: ...
"""
APPEND = """
from stream_of_test import app

with app.sync:
    app.sync.category("orders", partitions=2)
    for number in range(5):
        app.sync.append("orders", stream=f"order-{number}", name="placed", payload={})
"""
ENQUEUE = """
from shop_of_test import app, charge, nap

with app.sync:
    charge.sync.enqueue_many([{"order_id": number} for number in range(-1, 9)])
    nap.sync.enqueue(seconds=0.8)
"""
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
STATUS = re.compile(r"running \d+/10  done \d+  failed \d+  retried \d+  \d+/s")
LOG_LINE = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z [A-Z]+ +holdfast\.\w+: .*")


@pytest.fixture
def cli(tmp_path) -> Cli:
    cli = Cli(tmp_path)
    program(cli, ENQUEUE)
    return cli


def program(cli: Cli, text: str) -> None:
    subprocess.run([sys.executable, "-c", text], cwd=cli.directory, env=cli.environment({}), check=True)


def rows(shown: str) -> list[str]:
    """Return what a terminal shows in the end: the text after the last return to the beginning of each line."""
    return [ESCAPES.sub("", row).rpartition("\r")[2].strip() for row in shown.splitlines()]


def test_a_terminal_shows_a_status_line_under_whole_log_lines_and_ctrl_c_drains(cli: Cli):
    shown = cli.in_terminal("worker", "run", *cli.app, interrupt_at="done 10", width=80)

    text = ESCAPES.sub("", shown)
    assert STATUS.search(text)
    assert "done 10  failed 1  retried 0" in text
    logged = [row for row in rows(shown) if "holdfast." in row]
    assert all(LOG_LINE.fullmatch(row) for row in logged), logged
    assert any("no such order" in row and len(row) > 80 for row in logged)  # not folded at the width
    assert "the nap has begun" in rows(shown)  # printed by a handler
    assert logged[-1].endswith("has ended: 10 completed, 1 failed")
    assert not STATUS.search(rows(shown)[-1])  # it is gone in the end


def test_several_processes_show_the_sum_under_their_joined_logs(cli: Cli):
    shown = cli.in_terminal("worker", "run", *cli.app, "--processes", "2", interrupt_at="done 10", width=80)

    assert "running 0/20  done 10  failed 1  retried 0" in ESCAPES.sub("", shown)
    lines = rows(shown)
    logged = [row for row in lines if "holdfast." in row]
    assert all(re.fullmatch(rf"\[\w+\] {LOG_LINE.pattern}", row) for row in logged), logged
    assert any("no such order" in row and len(row) > 80 for row in logged)
    assert sum("has ended" in row for row in logged) == 2
    assert "running" not in lines[-1]


def test_a_consumer_shows_its_partitions_and_events(tmp_path):
    cli = Cli(tmp_path)
    (tmp_path / "stream_of_test.py").write_text(CONSUMER, encoding="utf-8")
    program(cli, APPEND)
    words = ("worker", "run", "--app", "stream_of_test:app", "--app-dir", ".", "--recovery", "2s")
    text = ESCAPES.sub("", cli.in_terminal(*words, interrupt_at="events 5"))
    assert re.search(r"partitions 2  events 5  \d+/s", text)


def test_quiet_shows_no_status_line(cli: Cli):
    shown = cli.in_terminal("worker", "run", *cli.app, "--until-empty", "--quiet")
    assert "has ended: 10 completed, 1 failed" in shown
    assert "retried 0" not in shown


@pytest.mark.parametrize("setting", [{}, {"FORCE_COLOR": "1"}])
def test_a_pipe_gets_no_status_line(cli: Cli, setting):
    done = cli.run("worker", "run", *cli.app, "--until-empty", **setting)
    assert "has ended: 10 completed, 1 failed" in done.stderr
    assert "retried 0" not in done.stderr
    assert "\x1b" not in done.stderr
