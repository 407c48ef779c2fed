"""The live status line of `worker run`, in a pseudo-terminal and in a pipe."""

from __future__ import annotations

import re

import pytest
from tests.system.cli_program import Cli

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
STATUS = re.compile(r"running  \d+/10 jobs  done \d+  failed \d+  retried \d+  \d+/s")
LOG_LINE = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z [A-Z]+ +holdfast\.\w+: .*")


@pytest.fixture
def cli(tmp_path) -> Cli:
    cli = Cli(tmp_path)
    for number in range(3):
        cli.enqueue("charge", f"order_id={number}")
    cli.enqueue("charge", "order_id=-1")
    return cli


def rows(shown: str) -> list[str]:
    """Return what a terminal shows in the end: the text after the last return to the beginning of each line."""
    return [ESCAPES.sub("", row).rpartition("\r")[2].strip() for row in shown.splitlines()]


def test_a_terminal_shows_a_status_line_under_whole_log_lines_and_ctrl_c_drains(cli: Cli):
    cli.enqueue("nap", "seconds=0.8")
    shown = cli.in_terminal("worker", "run", *cli.app, interrupt_at="done 4", width=80)

    text = ESCAPES.sub("", shown)
    assert STATUS.search(text)
    assert "done 4  failed 1  retried 0" in text
    logged = [row for row in rows(shown) if "holdfast." in row]
    assert all(LOG_LINE.fullmatch(row) for row in logged), logged
    assert any("no such order" in row and len(row) > 80 for row in logged)  # not folded at the width
    assert "the nap has begun" in rows(shown)  # printed by a handler
    assert logged[-1].endswith("has ended: 4 completed, 1 failed")
    assert not STATUS.search(rows(shown)[-1])  # it is gone in the end


def test_quiet_shows_no_status_line(cli: Cli):
    shown = cli.in_terminal("worker", "run", *cli.app, "--until-empty", "--quiet")
    assert "has ended: 3 completed, 1 failed" in shown
    assert "retried 0" not in shown


@pytest.mark.parametrize("setting", [{}, {"FORCE_COLOR": "1"}])
def test_a_pipe_gets_no_status_line(cli: Cli, setting):
    done = cli.run("worker", "run", *cli.app, "--until-empty", **setting)
    assert "has ended: 3 completed, 1 failed" in done.stderr
    assert "retried 0" not in done.stderr
    assert "\x1b" not in done.stderr
