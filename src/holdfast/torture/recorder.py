"""The history file of the current process: opened at the first record, and reopened after a fork."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from holdfast.torture.events import HistoryRecord
from holdfast.torture.history import SUFFIX, Writer, process_name

HISTORY: Final = "HOLDFAST_TORTURE_HISTORY"
RUN: Final = "HOLDFAST_TORTURE_RUN"
ROLE: Final = "HOLDFAST_TORTURE_ROLE"
NAME: Final = "HOLDFAST_TORTURE_NAME"


class Recorder:
    """Writes records of this process; without a directory it writes nothing, so that handlers can run alone."""

    def __init__(self, directory: str | None, *, run: str, role: str, name: str) -> None:
        self._directory = directory
        self._run = run
        self._role = role
        self._name = name
        self._writer: Writer | None = None
        self._pid = 0

    @classmethod
    def of_environment(cls) -> Recorder:
        """Return the recorder that the conductor configured."""
        read = os.environ.get
        return cls(read(HISTORY), run=read(RUN, "none"), role=read(ROLE, "worker"), name=read(NAME, "alone"))

    def write(self, event: HistoryRecord) -> None:
        """Append a record."""
        if self._directory is None:
            return
        if self._pid != os.getpid():
            self.open()
        if self._writer is not None:
            self._writer.write(event)

    def open(self) -> None:
        """Start the file of this process now."""
        if self._directory is None:
            return
        name = self._name
        while (Path(self._directory) / (process_name(self._role, name, os.getpid()) + SUFFIX)).exists():
            name += "x"  # the pid of a dead process was reused
        self._writer = Writer(self._directory, run=self._run, role=self._role, name=name)
        self._pid = os.getpid()

    def close(self) -> None:
        """End the file of this process cleanly, if it has one."""
        if self._writer is not None and self._pid == os.getpid():
            self._writer.close()


recorder: Final = Recorder.of_environment()
