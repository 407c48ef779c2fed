"""The sentence about a queue or task that is probably misspelt: it needs no registration, so it is no error."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches


def unknown_queue(queue: str, known: Collection[str]) -> str:
    """Return the warning about a queue that is not among the known ones, with the closest match."""
    return f"no job was ever enqueued to {queue}, and no task of the app uses this queue{_guess(queue, known)}"


def unknown_task(task: str, known: Collection[str]) -> str:
    """Return the warning about a task that is not among the known ones, with the closest match."""
    return f"no job of the task {task} was ever enqueued, and the app has no such task{_guess(task, known)}"


def _guess(name: str, known: Collection[str]) -> str:
    close = get_close_matches(name, sorted(known), 1) or [each for each in known if each.lower() == name.lower()]
    return f"; did you mean {close[0]}?" if close else ""
