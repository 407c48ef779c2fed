"""Split a history by job into files that fit into memory one at a time.

```text
   worker-a-1.jsonl ─┐                       ┌─▶ bucket 0 ─▶ job by job, each with all of its records
   worker-b-2.jsonl ─┼─▶ crc32(job) % count ─┼─▶ bucket 1
   producer-a-3.jsonl┘                       └─▶ …
```

A record of several jobs (an enqueue of many) is written once for each of them. Records without a job go only
to `RunFacts`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self
from zlib import crc32

import msgspec

from holdfast.torture.checker.job import Entry
from holdfast.torture.checker.run import RunFacts
from holdfast.torture.events import EnqueueAnswered, EnqueueCalled, EnqueueRefused, EnqueueUnknown, HistoryRecord
from holdfast.torture.history import History, decode, encode

_BUFFER: Final = 1 << 18
_MANY = (EnqueueCalled, EnqueueAnswered, EnqueueRefused, EnqueueUnknown)


def by_job(event: HistoryRecord) -> Iterator[tuple[str, HistoryRecord]]:
    """Yield a record for each job that it is about."""
    if isinstance(event, _MANY):
        jobs = event.jobs
        if len(jobs) == 1:
            yield jobs[0], event
            return
        changes: dict[str, Any] = {"size": len(jobs)} if isinstance(event, EnqueueCalled) else {}
        if isinstance(event, EnqueueAnswered):
            changes["new"] = ()
        for number, job in enumerate(jobs):
            if isinstance(event, EnqueueCalled) and event.chain:
                changes["after"] = (*event.after, *jobs[number - bool(number % event.chain) : number])
            yield job, msgspec.structs.replace(event, jobs=(job,), **changes)
    else:
        about: str | None = getattr(event, "job", None)
        if about is not None:
            yield about, event


class Buckets:
    """The files of one check, in a directory that the caller removes."""

    def __init__(self, directory: Path, count: int) -> None:
        self._paths = [directory / f"bucket-{number}" for number in range(count)]
        self._files: list[BinaryIO] = []
        self._processes: list[str] = []
        self.records = 0

    def __enter__(self) -> Self:
        """Open the files."""
        self._files = [path.open("wb", buffering=_BUFFER) for path in self._paths]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close the files."""
        for file in self._files:
            file.close()

    def fill(self, history: History, run: RunFacts) -> None:
        """Read the whole history once; everything of the run goes into `run`."""
        count, files = len(self._files), self._files
        for path in history.files:
            prefix = b"%d " % len(self._processes)
            self._processes.append(path.stem)
            for line, event in history.records(path):
                self.records += 1
                run.note(path.stem, event)
                if isinstance(event, _MANY) and len(event.jobs) != 1:
                    for job, part in by_job(event):
                        files[crc32(job.encode()) % count].write(prefix + encode(part))
                    continue
                about: str | None = event.jobs[0] if isinstance(event, _MANY) else getattr(event, "job", None)
                if about is not None:
                    files[crc32(about.encode()) % count].write(prefix + line)
        run.close()

    def jobs(self) -> Iterator[tuple[str, list[Entry]]]:
        """Yield every job with its records, bucket by bucket."""
        for path in self._paths:
            with path.open("rb", buffering=_BUFFER) as file:
                found = gather(self._read(file))
            path.unlink()
            yield from found.items()

    def _read(self, file: BinaryIO) -> Iterator[tuple[str, HistoryRecord]]:
        names = self._processes
        for line in file:
            number, _, record = line.partition(b" ")
            yield names[int(number)], decode(record)


def gather(records: Iterable[tuple[str, HistoryRecord]]) -> dict[str, list[Entry]]:
    """Return the records of each job."""
    found: dict[str, list[Entry]] = {}
    for process, event in records:
        for job, part in by_job(event):
            entries = found.get(job)
            if entries is None:
                entries = found[job] = []
            entries.append(Entry(process, part))
    return found
