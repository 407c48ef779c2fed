"""The picture of the demo is made by a script, small, and needs nothing from the network; every command has one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import click
import pytest
from rich.cells import cell_len
from tests.docs.test_documentation import ROOT, run

from holdfast.cli.main import cli

PICTURES = ROOT / "docs" / "pictures"
PICTURE = PICTURES / "demo.svg"
LONG = {"bench", "torture", "server run"}  # minutes, or until it is stopped
# SQL, log lines, and sentences with ids and numbers of any length.
UNBROKEN = (
    *("holdfast schema show", "holdfast worker run", "holdfast event append", "holdfast demo consume"),
    "holdfast server token create",
)
VERDICT = "Every completed job took effect exactly once"


def texts(picture: str) -> str:
    """Return what an SVG of a terminal shows."""
    return " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", picture)).replace("&#160;", " ")


@pytest.mark.slow
def test_the_script_takes_a_picture_of_the_demo(tmp_path: Path):
    target = tmp_path / "demo.svg"

    run(tmp_path, str(ROOT / "docs" / "pictures" / "demo.py"), "--jobs", "1000", "--to", str(target))

    shown = texts(target.read_text(encoding="utf-8"))
    assert VERDICT in shown
    assert shown.count("consuming") == 1  # only the last state of the live display is left


def test_the_picture_in_the_readme_shows_the_verdict():
    assert "(docs/pictures/demo.svg)" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert VERDICT in texts(PICTURE.read_text(encoding="utf-8"))


def test_the_picture_is_small_and_loads_nothing():
    picture = PICTURE.read_text(encoding="utf-8")

    assert len(picture) < 60_000
    assert re.findall(r"https?://\S+", picture) == ['http://www.w3.org/2000/svg">']


def commands(group: click.Command, *path: str) -> set[str]:
    """Return every command below a group, in words."""
    if not isinstance(group, click.Group):
        return {" ".join(path)}
    context = click.Context(group)
    below = ((name, group.get_command(context, name)) for name in group.list_commands(context))
    return {words for name, command in below if command for words in commands(command, *path, name)}


def test_every_command_has_a_picture():
    script = (PICTURES / "lists.py").read_text(encoding="utf-8")
    lines = ast.literal_eval(script.partition("\nCOMMANDS = ")[2].partition("\n)\n")[0] + "\n)")

    assert {words for words in commands(cli) - LONG if not any(line.startswith(words) for line in lines)} == set()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_command_fits_80_columns(tmp_path: Path):
    output = run(tmp_path, str(PICTURES / "lists.py"), "--text", "--width", "80", timeout=880)

    for shown in output.split("\n$ ")[1:]:
        title, _, screen = shown.partition("\n")
        assert "(80 columns)" in title
        assert "Error" not in screen.split(), shown
        too_long = [line for line in screen.splitlines() if cell_len(line) > 80]
        # What is printed to be copied is not broken.
        assert not too_long or title.startswith(UNBROKEN) or all("`holdfast " in line for line in too_long), shown
