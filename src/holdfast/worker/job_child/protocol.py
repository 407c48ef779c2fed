"""The messages between a worker, or a node, and a job child.

```text
   worker                                    child
   Hello ──────────────────────────────────▶        once: where to import from, and the store
   RunJob, or RunEvents ───────────────────▶        one job, or one event or batch, at a time
                   ◀──────────────── Began, or Unready: the handler was not found
                   ◀──────────────── Settlement: how far a transaction of its own has completed the job
   Notice ─────────────────────────────────▶        the lease is lost, a cancel is asked
                   ◀──────────────── AttemptEnded, or EventsEnded
   NoMoreJobs ────────────────────────────────────▶        no more jobs: close and exit
```

Each message is JSON behind its length in four bytes. Nothing is unpickled, and a handler is named by module and
qualified name from the worker's own memory, never from the store.
"""

from __future__ import annotations

import signal
from collections.abc import Generator, Iterator
from contextlib import contextmanager
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
"""A longer message than this is no message: somebody else has written to the connection."""

DEAF_TO: Final = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
"""What a terminal or a person sends to the whole group is meant for the worker, which decides about its children."""

_PREFIX: Final = 4
T = TypeVar("T")


class MainFile(msgspec.Struct, frozen=True):
    """The worker's `__main__`: its file, and the package that its relative imports start from."""

    path: bytes
    package: str


class Hello(msgspec.Struct, frozen=True, tag=True):
    """Who the worker is, where it imports from, and its store; paths are bytes, since not all of them are text.

    `store` is the full URL, which holds a password, so it is not shown; None: the app's own has to do.
    """

    worker: int
    path: list[bytes]
    main: MainFile | None
    store: bytes | None = None

    def __repr__(self) -> str:
        """Show who says so, and no password."""
        return f"Hello({self.worker})"


class RunJob(msgspec.Struct, frozen=True, tag=True):
    """RunJob this job with the handler found under `module` and `qualname`, which must be that of `task`."""

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
    """Tell the handler that runs now, if one does; `RunJob` and `Notice` stay in order, so no job need be named."""

    why: Why


class NoMoreJobs(msgspec.Struct, frozen=True, tag=True):
    """There are no more jobs."""


class Began(msgspec.Struct, frozen=True, tag=True):
    """The handler was found: from here on, the child's death is the job's doing."""


class Unready(msgspec.Struct, frozen=True, tag=True):
    """The handler could not be imported; the text names the remedy."""

    reason: str


class CompletionStage(StrEnum):
    """How far the handler's own transaction has come in completing the job; see `jobs.context.Settling`."""

    SETTLING = "settling"
    SETTLED = "settled"
    UNSETTLED = "unsettled"


class Settlement(msgspec.Struct, frozen=True, tag=True):
    """The handler's own transaction has come to this stage; SETTLING is said before it commits."""

    stage: CompletionStage


class AttemptEnded(msgspec.Struct, frozen=True, tag=True):
    """The attempt is over; None: its own transaction has settled the job, or it was broken off.

    `clean` says that it left nothing behind that the next job could suffer from.
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


class EventsEnded(msgspec.Struct, frozen=True, tag=True):
    """The call is over; `judgement` is what the consumer's policy makes of a failure."""

    end: EventEnd
    failure: Failure | None = None
    judgement: Judgement | None = None
    clean: bool = True


ToChild = Hello | RunJob | RunEvents | Notice | NoMoreJobs
FromChild = Began | Unready | Settlement | AttemptEnded | EventsEnded

_encoder = msgspec.json.Encoder()
to_child: Final[msgspec.json.Decoder[ToChild]] = msgspec.json.Decoder(ToChild)
from_child: Final[msgspec.json.Decoder[FromChild]] = msgspec.json.Decoder(FromChild)


def encode(message: ToChild | FromChild) -> bytes:
    """Return a message as it travels."""
    body = _encoder.encode(message)
    return len(body).to_bytes(_PREFIX, "big") + body


class Frames(Generic[T]):
    """Cuts what arrives into messages, wherever the pieces break."""

    def __init__(self, decoder: msgspec.json.Decoder[T]) -> None:
        self._decoder = decoder
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[T]:
        """Take in a piece and go over the messages that are now whole; raises ValueError for what is no message."""
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


class _Loading:
    main = False


@contextmanager
def loading_main() -> Generator[None]:
    """Mark the time in which a child executes the worker's main file."""
    _Loading.main = True
    try:
        yield
    finally:
        _Loading.main = False


def is_loading_main() -> bool:
    """Tell whether this is a child that executes the worker's main file: a worker must not be started by that."""
    return _Loading.main
