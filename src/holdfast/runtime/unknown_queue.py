"""The sentence about a queue that is probably misspelt: a queue needs no registration, so it is no error."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches


def unknown_queue(queue: str, known: Collection[str]) -> str:
    """Return what to say of a queue that is not among the known ones, with the closest match."""
    close = get_close_matches(queue, sorted(known), 1) or [name for name in known if name.lower() == queue.lower()]
    guess = f"; did you mean {close[0]}?" if close else ""
    return f"no job was ever enqueued to {queue}, and no task of the app uses this queue{guess}"
