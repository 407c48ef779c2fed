"""The history of a run: the records of every process, one file per process.

```text
   history/
     conductor-main-4711.jsonl      one file per process incarnation: <role>-<name>-<pid>.jsonl
     producer-a-4712.jsonl
     worker-a-4713.jsonl            the first line is `started`; the last is `ended`, unless the process was killed
     worker-a-4790.jsonl            the same worker, restarted
```

- Each line is one record of `holdfast.torture.events` as JSON, distinguished by `kind`. Files are append-only.
- A record is written by one `write(2)` to a file opened with O_APPEND, without a buffer in the process: a killed
  process leaves all its records, and at most one torn line at the very end. It is not fsynced, because the kernel
  outlives the processes of a run; the history does not prove durability against a power failure.
- `at_us` is CLOCK_MONOTONIC in microseconds. On Linux this clock is the same for the whole machine, so records of
  different processes can be compared: a run, its history and its store's clients are on one machine. A record is
  stamped when it is made, so an operation took effect before the `at_us` and after the `sent_us` of its reply.
- A torn line is accepted only at the end of a file whose process was killed, as an `exited` record with a signal in
  another file must show. Anything else that cannot be read raises `HistoryDamaged`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self, TypeVar

import msgspec

from holdfast.torture.events import AnyEvent, Exited, HistoryEnded, HistoryRecord, Started
from holdfast.torture.failure import RunFailed
from holdfast.torture.streams.records import AnyStreamEvent

SUFFIX: Final = ".jsonl"
_CHUNK = 1 << 20
_encoder = msgspec.json.Encoder()
E = TypeVar("E", bound=HistoryRecord)

AnyRecord = AnyEvent | AnyStreamEvent
_decoder: msgspec.json.Decoder[AnyRecord] = msgspec.json.Decoder(AnyRecord)


class HistoryDamaged(RunFailed):
    """A history cannot be read, so the run has no verdict."""


def now_us() -> int:
    """Return CLOCK_MONOTONIC in microseconds: one clock for all processes of this machine."""
    return time.monotonic_ns() // 1000


def encode(event: HistoryRecord) -> bytes:
    """Return a record as a line."""
    return _encoder.encode(event) + b"\n"


def decode(line: bytes) -> AnyRecord:
    """Return the record of a line; raises `msgspec.MsgspecError`."""
    return _decoder.decode(line)


class Writer:
    """The file of this process; thread-safe. A forked child opens its own."""

    def __init__(self, directory: Path | str, *, run: str, role: str, name: str) -> None:
        self.process = process_name(role, name, os.getpid())
        self.path = Path(directory) / (self.process + SUFFIX)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(self.path, flags, 0o600)
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self.write(Started(at_us=now_us(), run=run, role=role, name=name, pid=self._pid))

    def write(self, event: HistoryRecord) -> None:
        """Append a record with one write."""
        if os.getpid() != self._pid:
            message = f"process {os.getpid()} must not write to the history file of process {self._pid}"
            raise HistoryDamaged(message)
        line = encode(event)
        with self._lock:  # never into a closed file, or into another file that reuses its descriptor
            if self._descriptor < 0:
                raise HistoryDamaged(f"{self.path} is closed")
            try:
                written = os.write(self._descriptor, line)
            except OSError as error:
                raise HistoryDamaged(f"cannot write to {self.path}: {error.strerror}") from error
        if written != len(line):
            message = (
                f"only {written} of {len(line)} bytes of a record could be written to {self.path}: is the disk full?"
            )
            raise HistoryDamaged(message)

    def close(self) -> None:
        """End the file cleanly."""
        with self._lock:
            if self._descriptor >= 0:
                self.write(HistoryEnded(at_us=now_us()))
                os.close(self._descriptor)
                self._descriptor = -1

    def __enter__(self) -> Self:
        """Return the writer itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the file."""
        self.close()


def process_name(role: str, name: str, pid: int) -> str:
    """Return the name of a process in a history: in `Exited` and as the target of faults."""
    return f"{role}-{name}-{pid}"


class History:
    """Reads the files of a run; keeps nothing in memory."""

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        self.files = sorted(self.directory.glob("*" + SUFFIX))
        if not self.files:
            message = f"no history in {self.directory}: it has no *{SUFFIX} file"
            raise HistoryDamaged(message)

    def lines(self, file: Path) -> Iterator[bytes]:
        """Yield the complete lines of a file, then check whether a torn line at its end is acceptable."""
        number = 0
        with file.open("rb", buffering=_CHUNK) as stream:
            for line in stream:
                number += 1
                if line.endswith(b"\n"):
                    yield line
                elif not self.was_killed(file.stem):
                    message = f"{file}:{number} is torn, but no `exited` record says that {file.stem} was killed"
                    raise HistoryDamaged(message)

    def records(self, file: Path) -> Iterator[tuple[bytes, AnyRecord]]:
        """Yield the lines of a file, each with its record."""
        decoder = _decoder.decode
        for number, line in enumerate(self.lines(file), 1):
            try:
                yield line, decoder(line)
            except msgspec.MsgspecError as error:
                message = f"{file}:{number} is not a history record: {error}"
                raise HistoryDamaged(message) from error

    def all(self) -> Iterator[tuple[str, AnyRecord]]:
        """Yield every record with the name of its process, file by file."""
        for file in self.files:
            for _, event in self.records(file):
                yield file.stem, event

    def of(self, kind: type[E]) -> Iterator[tuple[str, E]]:
        """Yield every record of one kind; the others are not decoded."""
        marker = b'"kind":"' + str(kind.__struct_config__.tag).encode() + b'"'
        for file in self.files:
            for line in self.lines(file):
                if marker in line:
                    event = _decoder.decode(line)
                    if isinstance(event, kind):
                        yield file.stem, event

    def was_killed(self, process: str) -> bool:
        """Return whether the process was seen to die of a signal."""
        marker = b'"kind":"exited"'
        for file in self.files:
            if file.stem == process:
                continue
            with file.open("rb", buffering=_CHUNK) as stream:
                for line in stream:
                    if marker in line and line.endswith(b"\n"):
                        event = _decoder.decode(line)
                        if isinstance(event, Exited) and event.process == process and event.signal is not None:
                            return True
        return False
