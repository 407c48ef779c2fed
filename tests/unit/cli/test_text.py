from __future__ import annotations

import pytest
from tests.unit.cli.conftest import HOSTILE, SHOWN

from holdfast.reports.text import block, has_password, line, mask


def test_nothing_in_a_line_acts_on_a_terminal():
    assert line(HOSTILE) == SHOWN


def test_characters_beyond_the_basic_plane_are_escaped_too():
    assert line("a\U000e0041b") == r"a\U000e0041b"


def test_ordinary_text_of_any_language_is_left_alone():
    assert line("Überweisung 送金 😀 €") == "Überweisung 送金 😀 €"


def test_a_block_keeps_its_lines_and_escapes_the_rest():
    assert block("a\n\tb\x1b\nc\r") == "a\n    b\\x1b\nc\\r"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("postgresql://joe:s3cret@db/app", "postgresql://joe:***@db/app"),
        ("'redis://:s3cret@db'", "'redis://:***@db'"),
        ("mysql://joe:a/b?c@d@db/app", "mysql://joe:***@db/app"),
        ("postgresql://db/app?password=s3cret&x=1", "postgresql://db/app?password=***&x=1"),
        ("postgresql://db/app?sslpassword=s3cret", "postgresql://db/app?sslpassword=***"),
    ],
)
def test_a_password_in_a_url_is_masked_wherever_it_stands(text, masked):
    assert mask(f"cannot reach {text} today") == f"cannot reach {masked} today"
    assert has_password(text)


@pytest.mark.parametrize("url", ["sqlite:////tmp/a@b.db", "postgresql://joe@db:5432/app", "redis://db:6379/0"])
def test_a_url_without_a_password_is_not_touched(url):
    assert mask(url) == url
    assert not has_password(url)
