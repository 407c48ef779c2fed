"""Numbers with their nouns."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """Return a number of things: `1 job`, `2,000 jobs`."""
    return f"1 {noun}" if count == 1 else f"{count:,} {noun}s"
