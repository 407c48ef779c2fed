"""The command line as people see it, in a pseudo-terminal."""

from __future__ import annotations

import json
import re

import pytest
from tests.system.cli_program import Cli

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def cli(tmp_path) -> Cli:
    return Cli(tmp_path)


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> tuple[Cli, str]:
    """A store with a job that has failed, and the id of that job; these tests only look at it."""
    cli = Cli(tmp_path_factory.mktemp("shop"))
    job_id = cli.enqueue("charge", "order_id=-1")
    cli.run("worker", "run", *cli.app, "--until-empty")
    return cli, job_id


def test_a_terminal_gets_a_table_with_colours(shop):
    cli, failed = shop
    shown = cli.in_terminal("job", "list", width=140)
    assert "\x1b[31mfailed\x1b[0m" in shown
    head, rule, row, *_ = COLOUR.sub("", shown).splitlines()
    assert head.split() == ["id", "state", "queue", "task", "attempt", "when", "reason"]
    assert set(rule) == {"─"}
    assert row.split()[:4] == [failed, "failed", "orders", "charge"]


@pytest.mark.parametrize("setting", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colour_is_shown_where_it_is_not_wanted(shop, setting):
    cli, failed = shop
    shown = cli.in_terminal("job", "list", width=140, **setting)
    assert "\x1b[3" not in shown
    assert failed[-4:] in shown


def test_stored_text_is_neither_obeyed_nor_read_as_markup(shop):
    cli, failed = shop
    for words in (("job", "list"), ("job", "show", failed), ("job", "show", failed, "--show-args")):
        shown = COLOUR.sub("", cli.in_terminal(*words, width=200, NO_COLOR="1"))
        assert "[red]evil[/red]" in shown
        assert r"\u202e" in shown
        assert r"\nsecond line" in shown
        assert not set("\x1b\u202e") & set(shown)


@pytest.mark.parametrize("width", [20, 60, 100])
@pytest.mark.slow
def test_nothing_is_cut_off_on_a_narrow_terminal(shop, width):
    cli, failed = shop
    for words in (("job", "list"), ("doctor",), ("queue", "list"), ("job", "show", failed)):
        shown = COLOUR.sub("", cli.in_terminal(*words, width=width))
        assert words == ("job", "list") or "…" not in shown
        assert words[:2] == ("job", "show") or all(len(line) <= width for line in shown.splitlines())
    assert failed in re.sub(r"\s", "", shown)
    assert "secondline" in re.sub(r"\s", "", shown)


@pytest.mark.parametrize("words", [("job", "list", "--watch", "0.1"), ("top", "--interval", "0.1")], ids=" ".join)
@pytest.mark.parametrize("typed", ["q", "\x03"])
def test_a_live_frame_is_redrawn_until_a_key_ends_it(cli, words, typed):
    cli.enqueue("charge", "order_id=7")
    shown = cli.in_terminal(*words, typed=typed, after="orders")  # the end of the frame: a signal may cut one short
    assert "ready" in COLOUR.sub("", shown)
    assert re.search(r"\x1b\[(2K|1A|H)", shown), "it was redrawn in place"


def test_several_jobs_are_changed_when_the_person_says_yes(cli):
    ids = [cli.enqueue("charge", "order_id=7") for _ in range(2)]
    shown = cli.in_terminal("job", "cancel", *ids, typed="y\n")
    assert "Cancel 2 jobs? [y/N]: y" in shown
    assert all(f"{job_id} cancelled" in shown for job_id in ids)
    shown = cli.in_terminal("job", "retry", "--state", "cancelled", typed="y\n")
    assert "Retry 2 jobs (cancelled)?" in shown
    assert "2 jobs retried" in shown


def test_nothing_is_changed_when_the_person_says_no(cli):
    ids = [cli.enqueue("charge", "order_id=7") for _ in range(2)]
    assert "Nothing was changed." in cli.in_terminal("job", "cancel", *ids, typed="n\n", code=1)
    jobs = json.loads(cli.run("job", "list", "--json").stdout)["jobs"]
    assert {job["state"] for job in jobs} == {"ready"}


def test_ctrl_c_at_a_question_ends_the_command_and_changes_nothing(cli):
    ids = [cli.enqueue("charge", "order_id=7") for _ in range(2)]
    shown = cli.in_terminal("job", "cancel", *ids, typed="\x03", code=130)
    assert "\nStopped: nothing was changed." in COLOUR.sub("", shown)
    assert len(json.loads(cli.run("job", "list", "--state", "ready", "--json").stdout)["jobs"]) == 2


def test_an_end_of_input_at_a_question_changes_nothing(cli):
    ids = [cli.enqueue("charge", "order_id=7") for _ in range(2)]
    cli.in_terminal("job", "cancel", *ids, typed="\x04", code=1)
    assert len(json.loads(cli.run("job", "list", "--state", "ready", "--json").stdout)["jobs"]) == 2


def test_a_suggested_command_is_not_broken_on_a_narrow_terminal(cli):
    shown = COLOUR.sub("", cli.in_terminal("job", "list", "--url", "sqlite:///no such.db", width=40, code=69))
    assert "`holdfast schema install --url 'sqlite:///no such.db'`" in shown
