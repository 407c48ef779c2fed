"""Large enqueues: kept aside in pieces, declared complete by one short script, then applied piece by piece.

```text
   lock ─▶ read, decide ─▶ stage pieces ─▶ one script: the batch is enqueued ─▶ apply pieces ─▶ unlocked
   └─ 2 s, and 0.2 ms for each job; ─┘              no expiry                   by any process
      extended before each call
```

Pieces that were staged have no effect until the batch is complete. From then on its jobs are enqueued: if the process
ends, the next one that promotes, or meets the lock, resumes it.

Only a call with conditions (unique keys, parents) takes the lock (`lua/batch_lock.lua`). While a batch has it, no other
call writes conditions, and no job is deleted. So what the call reads stays valid, and it needs no guards. It extends
the lock before each of its calls: reading may take many of them.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from holdfast.backends.redis.scripts import APPLY_BATCH, STAGE
from holdfast.backends.redis.steps import (
    PIECE_BYTES,
    Command,
    Group,
    Pause,
    Pending,
    Restart,
    ScriptCall,
    StagedBatch,
    Word,
    pending,
    pieces_of,
    read,
    size_of,
)
from holdfast.errors import OutcomeUnknown, StoreUnavailable
from holdfast.store.steps import Steps

T = TypeVar("T")
_LOCKED = 2_000_000  # microseconds for which a batch has the lock after each of its scripts,
_FOR_EACH = 200  # and for each of its jobs and links
_ENQUEUED = 2**63 - 1  # the end of the lock of a batch that is enqueued: until it is inserted
_WAIT = 0.02  # seconds between two looks at the lock, at most
_WAITS = 3000
_JOBS = 250  # that one script inserts of a batch
_COMMANDS = 500  # that one script applies of a batch
_WORDS = 500  # that one script stages, and the rest of a piece


def enqueue_in_pieces(packed: Sequence[bytes]) -> Steps[bytes]:
    """Enqueue many jobs without conditions, all or none; return 1 for each that is new, and 0 for the others.

    If some are gone before the batch is complete, because of a failover or after five minutes, all are sent again.
    """
    name = secrets.token_bytes(16)
    lanes = (yield from pending()).lanes
    yield from _stage(name, ([0, "", *some] for some in pieces_of(packed, _JOBS, len)), lanes)
    yield from _apply(name)
    _, (answers,) = yield from read(("GET", b"v" + name))
    if len(answers or b"") != len(packed):  # they have a time to live, so a server with full memory may evict them
        raise OutcomeUnknown("the jobs are enqueued, but the server has lost which were new: repeat with the same ids")
    return answers  # type: ignore[no-any-return]


def under_lock(steps: Steps[T], size: int) -> Steps[T]:
    """Stage what these steps collect; until it is written, no other call writes conditions, or deletes jobs.

    The lock is extended before each call. If it was lost, what was read may have changed: raises `Restart`. Between two
    calls the process computes, for a time that grows with the `size`, the number of jobs and links; so does the lock's.
    """
    batch = StagedBatch(secrets.token_bytes(16), _LOCKED + _FOR_EACH * size)
    yield from _locked(batch, 0)
    (yield from pending()).batch = batch
    try:
        asked = next(steps)
        while True:
            if isinstance(asked, ScriptCall):
                yield from _locked(batch, "+")
            asked = steps.send((yield asked))
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        steps.close()


def _locked(batch: StagedBatch, how: Word) -> Steps[None]:
    if not (yield ScriptCall(STAGE, [batch.name, how, batch.span, 0], is_kept_back=True)):
        raise Restart


def commit_batch(collected: Pending) -> Steps[None]:
    """Write all that a verb has collected under the lock; raises `Restart` if the lock is lost."""
    if collected.batch is not None:
        name, span = collected.batch
        yield from _stage(name, _pieces(collected), collected.lanes, span)
        yield from _apply(name)


def unlock(collected: Pending) -> Steps[None]:
    """Release the lock: nothing was enqueued."""
    if collected.batch is not None:
        yield ScriptCall(STAGE, [collected.batch.name, 0, 0, 0], is_kept_back=True)


def wait_for_batch() -> Steps[None]:
    """Wait while a batch has the lock; resume it if it is enqueued."""
    for _ in range(_WAITS):
        now, (text,) = yield from read(("GET", "batch_lock"))
        until = 0 if text is None else int.from_bytes(text[16:], "big")
        if until <= now:
            return
        if until == _ENQUEUED:
            yield ScriptCall(APPLY_BATCH, [""], is_kept_back=True)
        else:
            yield Pause(random.uniform(0, _WAIT))  # noqa: S311 - not a secret
    raise StoreUnavailable("other calls enqueue very many jobs with conditions: try again")


def apply_batches() -> Steps[None]:
    """Insert all batches that are enqueued, also those of processes that have ended."""
    yield from _apply(b"")


def _stage(name: bytes, pieces: Iterable[Sequence[Word]], lanes: bytes, locked: Word = "") -> Steps[None]:
    """Keep pieces aside, which has no effect before the last call: from then on they are enqueued."""
    words: list[Word] = []
    before = 0
    for piece in pieces:
        if len(words) > _WORDS or size_of(words) > PIECE_BYTES:
            yield from _send([name, 0, locked, before, *words], lanes, is_last=False)
            before += len(words)
            words = []
        words += (len(piece), *piece)
    yield from _send([name, 1, locked, before, *words], lanes, is_last=True)


def _send(words: Sequence[Word], lanes: bytes, *, is_last: bool) -> Steps[None]:
    if not (yield ScriptCall(STAGE, words, is_kept_back=not is_last, lanes=lanes)):
        raise Restart  # the lock has expired, or a failover has lost what was kept


def _apply(name: bytes) -> Steps[None]:
    """Apply the pieces of a batch, after those of batches before it; of all, without a name."""
    while (yield ScriptCall(APPLY_BATCH, [name])):
        pass


def _pieces(collected: Pending) -> Iterator[list[Word]]:
    """Yield what is staged: keys and links, then jobs, those that wait first, then what is to be decided."""
    first = [collected.places[job_id] for job_id in collected.order]
    places = [*first, *sorted(set(range(len(collected.jobs))) - set(first))]
    yield from _of_commands(collected.commands)
    for some in pieces_of(places, _JOBS, lambda place: len(collected.jobs[place])):
        yield [0, collected.seqs_of(some), *(collected.jobs[place] for place in some)]
    yield from _of_commands(collected.late)


def _of_commands(commands: Sequence[Command]) -> Iterator[list[Word]]:
    for some in pieces_of(commands, _COMMANDS, size_of):
        yield [1, *Group((), _joined(some)).words(), ""]


def _joined(commands: Sequence[Command]) -> list[Command]:
    """Return fewer commands that do the same: those for one hash or set are one."""
    joined: dict[tuple[Word, ...], list[Word]] = {}
    for number, (name, key, *words) in enumerate(commands):
        place = (name, key) if name in {"HSET", "SADD"} else (number,)
        joined.setdefault(place, [name, key]).extend(words)
    return list(joined.values())
