"""Virtual time: scheduled events, and the trace of past ones."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from heapq import heappop, heappush

SECOND = 1_000_000
Entry = tuple[int, str, str, tuple[str, ...], str]
"""One line of a trace: time (microseconds), actor, event, the jobs concerned, and a detail."""


class Violated(Exception):  # noqa: N818 - reads as the sentence it states
    """A broken rule: which, how, and by which job if one is concerned."""

    def __init__(self, rule: str, message: str, job_id: str | None = None) -> None:
        super().__init__(message)
        self.rule = rule
        self.message = message
        self.job_id = job_id


class SimulatedWorld:
    """True time in whole microseconds, and the queue of scheduled events.

    Events due at the same microsecond run in the order in which they were scheduled, so that only the seed decides the
    order.
    """

    __slots__ = ("_count", "_heap", "now", "steps", "trace")

    def __init__(self) -> None:
        self.now = 0
        self.steps = 0
        self.trace: list[Entry] = []
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, when: int, action: Callable[[], None]) -> None:
        """Run `action` at a time; a past time means now."""
        self._count += 1
        heappush(self._heap, (max(when, self.now), self._count, action))

    def after(self, span: int, action: Callable[[], None]) -> None:
        """Run `action` after so many microseconds."""
        self._count += 1
        heappush(self._heap, (self.now + span, self._count, action))

    def run(self, until: int) -> None:
        """Run events until a time."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.now, _, action = heappop(heap)
            self.steps += 1
            action()
        self.now = until

    def note(self, actor: str, what: str, jobs: tuple[str, ...] = (), detail: str = "") -> None:
        """Append a line to the trace."""
        self.trace.append((self.now, actor, what, jobs, detail))

    def digest(self) -> str:
        """Return a hash of the whole trace: equal for two identical runs."""
        return hashlib.sha256(repr(self.trace).encode()).hexdigest()


def about(trace: list[Entry], job_id: str | None, *, last: int = 60) -> list[Entry]:
    """Return the lines about a job, or all, with the faults between them; at most the last few."""
    if job_id is None:
        return trace[-last:]
    return [entry for entry in trace if job_id in entry[3] or entry[2].startswith("fault")][-last:]


def shown(entry: Entry) -> str:
    """Return a line of a trace as text."""
    when, actor, what, jobs, detail = entry
    return f"{when / SECOND:10.4f}  {actor:<10} {what:<22} {' '.join(jobs)} {detail}".rstrip()
