"""The conductor's own history: the run, the ends of processes, the faults; and what of it the view shows."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from holdfast.torture.events import Exited, FaultBegan, FaultEnded
from holdfast.torture.history import SUFFIX, Writer, now_us
from holdfast.torture.plan import Fault


class Log:
    """Writes what the conductor does and sees."""

    def __init__(self, directory: Path, run: str, told: Callable[[str], None]) -> None:
        self.directory = directory
        self.writer = Writer(directory, run=run, role="conductor", name="main")
        self.told = told
        self.over = threading.Event()
        """Set when the time of faults is over: what lasts is to end."""
        self._numbers = itertools.count(1)
        self._exited: set[str] = set()
        self.done: Counter[Fault] = Counter()
        """The faults that have happened, by kind."""

    def exited(self, process: str, code: int | None) -> None:
        """Note the end of a process; a negative code is a signal that killed it, None that nobody saw it."""
        if process in self._exited:
            return
        self._exited.add(process)
        record = (
            Exited(at_us=now_us(), process=process, signal=-code)
            if code is not None and code < 0
            else Exited(at_us=now_us(), process=process, code=code)
        )
        self.writer.write(record)

    def exited_if_known(self, process: str, code: int | None) -> None:
        """Note the end of a process that may have had no history of its own."""
        if (self.directory / (process + SUFFIX)).exists():
            self.exited(process, code)

    @contextmanager
    def fault(
        self, kind: Fault, target: str, detail: str = "", *, stalls: bool = False, asks: bool = False
    ) -> Generator[None]:
        """Note that a fault begins, and when it is over."""
        number = next(self._numbers)
        self.writer.write(
            FaultBegan(
                at_us=now_us(), number=number, fault=kind, target=target, detail=detail, stalls=stalls, asks=asks
            )
        )
        self.told(f"{kind} {target}{f': {detail}' if detail else ''}")
        try:
            yield
        finally:
            self.writer.write(FaultEnded(at_us=now_us(), number=number, fault=kind, target=target))

    def count(self, kind: Fault, times: int = 1) -> None:
        """Count a fault that has happened for sure."""
        self.done[kind] += times

    def close(self) -> None:
        """End the file."""
        self.writer.close()
