"""The picture of the demo is made by a script, small, and needs nothing from the network."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.docs.test_documentation import ROOT, run

PICTURE = ROOT / "docs" / "pictures" / "demo.svg"
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
