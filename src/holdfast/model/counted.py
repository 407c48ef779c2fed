"""Counts with the singular or plural of their noun."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: `1 job`, `2,000 jobs`."""
    return f"1 {noun}" if count == 1 else f"{count:,} {noun}s"
