"""When a store counts as stuck: not when it takes long, but when nothing more comes to its end."""

from __future__ import annotations


class Draining:
    """What is left after the faults, and since when it has not become less."""

    def __init__(self, now: float, *, patience: float) -> None:
        """`patience`: so many seconds may pass until one more has ended."""
        self._patience = patience
        self._since = now
        self._least: int | None = None

    def saw(self, now: float, left: int) -> None:
        """Take in how much is left; work that begets work may be more for a while."""
        if self._least is None or left < self._least:
            self._least, self._since = left, now

    def is_stuck(self, now: float) -> bool:
        """Tell whether nothing has ended for too long."""
        return now - self._since > self._patience
