"""The messages between a worker, or a node, and a job child.

```text
   worker                                    child
   Hello ──────────────────────────────────▶        once: where to import from, and the store
   RunJob, or RunEvents ───────────────────▶        one job, or one event or batch, at a time
                   ◀──────────────── Began, or Unready: the handler was not found
                   ◀──────────────── Settlement: a stage of the handler's own transaction
   Notice ─────────────────────────────────▶        the lease is lost, or a cancel was requested
                   ◀──────────────── JobEnded, or EventsEnded
   NoMoreJobs ─────────────────────────────▶        close and exit
```

Each message is JSON, preceded by its length in four bytes. Nothing is unpickled, and the module and qualified name of a
handler come from the worker's memory, never from the store.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from datetime import timedelta
from enum import StrEnum
from typing import Final, Generic, TypeVar

import msgspec

from holdfast.model.allocation import Grant
from holdfast.model.event import StoredEvent
from holdfast.model.job import LeasedJob
from holdfast.model.outcome import Failure, Outcome
from holdfast.store.stream_values import Commit
from holdfast.streams.event_retry import Judgement
from holdfast.worker.decision import Why

MAX_MESSAGE: Final = 64 * 1024 * 1024
"""A message announced as longer than this is invalid: other code has written to the socket."""

DEAF_TO: Final = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
"""Signals that are sent to the whole process group are meant for the worker, which controls its children."""

_PREFIX: Final = 4
T = TypeVar("T")


class MainFile(msgspec.Struct, frozen=True):
    """The worker's `__main__`: its file, and the package of its relative imports."""

    path: bytes
    package: str


class Hello(msgspec.Struct, frozen=True, tag=True):
    """The worker's id, its import path and its store; paths are bytes, since not all of them are text.

    `store` is the full URL, which may contain a password, so it is not shown; None: use the app's store.
    """

    worker: int
    path: list[bytes]
    main: MainFile | None
    store: bytes | None = None

    def __repr__(self) -> str:
        """Show the worker's id, but no password."""
        return f"Hello({self.worker})"


class RunJob(msgspec.Struct, frozen=True, tag=True):
    """Run this job with the handler found under `module` and `qualname`, which must be that of `task`."""

    module: str
    qualname: str
    task: str
    job: LeasedJob
    lease: timedelta


class RunEvents(msgspec.Struct, frozen=True, tag=True):
    """Handle these events with the handler found under `module` and `qualname`, which must be that of `consumer`.

    `commit` is the position that commits with the effect, under `grant`, in a transaction of at most `limit`.
    """

    module: str
    qualname: str
    consumer: str
    events: list[StoredEvent]
    replayed: list[bool]
    grant: Grant
    commit: Commit
    limit: timedelta
    attempt: int


class Notice(msgspec.Struct, frozen=True, tag=True):
    """Notify the running handler, if there is one; `RunJob` and `Notice` stay in order, so it names no job."""

    why: Why


class NoMoreJobs(msgspec.Struct, frozen=True, tag=True):
    """There are no more jobs."""


class Began(msgspec.Struct, frozen=True, tag=True):
    """The handler was found: from now on, the death of the child counts against the job."""


class Unready(msgspec.Struct, frozen=True, tag=True):
    """The handler could not be imported; the text names the remedy."""

    reason: str


class CompletionStage(StrEnum):
    """The stages of the handler's own transaction; see `jobs.effect.Settling`."""

    SETTLING = "settling"
    SETTLED = "settled"
    UNSETTLED = "unsettled"


class Settlement(msgspec.Struct, frozen=True, tag=True):
    """The handler's own transaction has reached this stage; SETTLING is sent before it commits."""

    stage: CompletionStage


class JobEnded(msgspec.Struct, frozen=True, tag=True):
    """The attempt has ended; None: its own transaction has settled the job, or it was aborted.

    `clean` means that it left nothing behind that could affect the next job.
    """

    outcome: Outcome | None
    clean: bool


class EventEnd(StrEnum):
    """How the call of a consumer's handler ended."""

    DONE = "done"
    FAILED = "failed"
    LEASE_LOST = "lease_lost"
    UNPARKED = "unparked"
    UNKNOWN = "unknown"
    UNAVAILABLE = "unavailable"
    CONFLICT = "conflict"


class EventsEnded(msgspec.Struct, frozen=True, tag=True):
    """The call has ended; `judgement` is the decision of the consumer's retry policy about a failure."""

    end: EventEnd
    failure: Failure | None = None
    judgement: Judgement | None = None
    clean: bool = True


ToChild = Hello | RunJob | RunEvents | Notice | NoMoreJobs
FromChild = Began | Unready | Settlement | JobEnded | EventsEnded

_encoder = msgspec.json.Encoder()
to_child: Final[msgspec.json.Decoder[ToChild]] = msgspec.json.Decoder(ToChild)
from_child: Final[msgspec.json.Decoder[FromChild]] = msgspec.json.Decoder(FromChild)


def encode(message: ToChild | FromChild) -> bytes:
    """Return the bytes of a message."""
    body = _encoder.encode(message)
    return len(body).to_bytes(_PREFIX, "big") + body


class Frames(Generic[T]):
    """Splits received bytes into messages."""

    def __init__(self, decoder: msgspec.json.Decoder[T]) -> None:
        self._decoder = decoder
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[T]:
        """Add received bytes and yield the messages that are now complete; raises ValueError for an invalid one."""
        self._buffer += data
        return self._cut()

    def _cut(self) -> Iterator[T]:
        buffer = self._buffer
        while len(buffer) >= _PREFIX:
            length = int.from_bytes(buffer[:_PREFIX], "big")
            if length > MAX_MESSAGE:
                message = f"a message of {length} bytes was announced: this is not the protocol of job children"
                raise ValueError(message)
            end = _PREFIX + length
            if len(buffer) < end:
                return
            body = bytes(buffer[_PREFIX:end])
            del buffer[:end]
            yield self._decoder.decode(body)  # its errors are ValueErrors
