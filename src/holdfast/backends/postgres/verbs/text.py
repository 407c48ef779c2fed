"""Text as PostgreSQL can keep it."""

from __future__ import annotations


def clean(text: str) -> str:
    """Return words for people without what a text column refuses: NUL, and halves of surrogate pairs."""
    return text.replace("\0", "\N{SYMBOL FOR NULL}").encode("utf-8", "replace").decode("utf-8")


def clean_or_none(text: str | None) -> str | None:
    """Do the same where there may be none."""
    return None if text is None else clean(text)
