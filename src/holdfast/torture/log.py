"""The conductor's own history file: the run, process exits and faults; parts of it are shown in the live view."""

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
    """Records what the conductor does and sees."""

    def __init__(self, directory: Path, run: str, show: Callable[[str], None]) -> None:
        self.directory = directory
        self.writer = Writer(directory, run=run, role="conductor", name="main")
        self.show = show
        self.over = threading.Event()
        """Set when the fault phase has ended: faults in progress must end."""
        self._numbers = itertools.count(1)
        self._exited: set[str] = set()
        self.done: Counter[Fault] = Counter()
        """The number of injected faults, by kind."""

    def began(self, process: str) -> None:
        """Note that a process has begun: one that exited may have had the same number, and so the same name."""
        self._exited.discard(process)

    def exited(self, process: str, code: int | None) -> None:
        """Record a process exit; a negative code is the signal that killed it, None means that the code is unknown."""
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
        """Record the exit of a process that may have no history file."""
        if (self.directory / (process + SUFFIX)).exists():
            self.exited(process, code)

    @contextmanager
    def fault(
        self, kind: Fault, target: str, detail: str = "", *, stalls: bool = False, asks: bool = False
    ) -> Generator[None]:
        """Record the start and the end of a fault."""
        number = next(self._numbers)
        self.writer.write(
            FaultBegan(
                at_us=now_us(), number=number, fault=kind, target=target, detail=detail, stalls=stalls, asks=asks
            )
        )
        self.show(f"{kind} {target}{f': {detail}' if detail else ''}")
        try:
            yield
        finally:
            self.writer.write(FaultEnded(at_us=now_us(), number=number, fault=kind, target=target))

    def count(self, kind: Fault, times: int = 1) -> None:
        """Count a fault that certainly happened."""
        self.done[kind] += times

    def close(self) -> None:
        """End the file."""
        self.writer.close()
