"""Text that every store can hold."""

from __future__ import annotations


def clean(text: str) -> str:
    """Replace the characters that a text column rejects: NUL and unpaired surrogates."""
    return text.replace("\0", "\N{SYMBOL FOR NULL}").encode("utf-8", "replace").decode("utf-8")
