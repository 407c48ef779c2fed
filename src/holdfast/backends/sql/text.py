"""Text that every store can keep."""

from __future__ import annotations


def clean(text: str) -> str:
    """Return a text for people without what a text column refuses: NUL, and halves of surrogate pairs."""
    return text.replace("\0", "\N{SYMBOL FOR NULL}").encode("utf-8", "replace").decode("utf-8")


def clean_or_none(text: str | None) -> str | None:
    """Do the same where the text may be absent."""
    return None if text is None else clean(text)
