from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.runtime.text import clean

anything = st.text(st.characters(codec=None, categories=None))  # surrogates too


@given(anything, st.integers(0, 60))
def test_any_text_becomes_storable_within_its_limit(text, limit):
    encoded = clean(text, limit).encode()
    assert len(encoded) <= limit
    assert not ({*range(32)} - {9, 10}) & {*encoded}
    assert 127 not in encoded


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc"])))
def test_a_harmless_text_that_fits_is_unchanged(text):
    assert clean(text, len(text.encode())) == text


def test_newlines_and_tabs_stay_and_other_controls_become_visible():
    assert clean("a\tb\nc\0d\x1b[31m\r\x7f\x9b", 100) == r"a	b" + "\n" + r"c\x00d\x1b[31m\x0d\x7f\x9b"


def test_a_lone_surrogate_becomes_visible():
    assert clean("a\ud800b", 100) == r"a\ud800b"


def test_a_cut_never_splits_a_character():
    assert clean("ääää", 8) == "ääää"
    assert clean("ääää", 7) == "ää…"
    assert clean("ääää", 6) == "ä…"
    assert clean("😀😀", 7) == "😀…"
    assert clean("😀😀", 6) == "…"


def test_without_room_for_the_mark_the_text_is_just_cut():
    assert clean("abcd", 2) == "ab"
    assert clean("äb", 1) == ""
    assert clean("abc", 0) == ""
