"""Text that every store can keep."""

from __future__ import annotations


def clean(text: str) -> str:
    """Return a text for people without what a text column refuses: NUL, and halves of surrogate pairs."""
    return text.replace("\0", "\N{SYMBOL FOR NULL}").encode("utf-8", "replace").decode("utf-8")
