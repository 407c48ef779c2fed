"""The requests of verbs, and the writes that a verb collects.

A verb on Redis holds no lock. It reads, decides, and sends what it writes together with guards: what it has read must
still be there. `JobRows.write` refuses single changes. Everything else that belongs together (unique keys, links,
schedules, the insertion of jobs) is collected in `Pending`, and written by one script, all or nothing: if a guard does
not hold, the verb starts again.

```text
   verb ──▶ reads ──▶ decides ──▶ collects ──▶ ends ──▶ one script ──▶ all guards hold: done
     ▲                                                       │
     └───────────────────────── nothing was written ◀────────┘
```

`staging.py` writes what is too much for one script; `runners.py` runs verbs.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from holdfast.backends.redis.record import bucket, id_of
from holdfast.backends.redis.scripts import COMMIT, READ, WRITE, LuaScript
from holdfast.store.steps import BecameReady, Steps, Verb

T = TypeVar("T")
Word = bytes | str | int | float
Command = Sequence[Word]
AT_ONCE = 500  # commands of one step
PIECE_BYTES = 1_000_000  # of what one step writes, as far as it can be divided


class ScriptCall(NamedTuple):
    """A request: run a script. `any_store`: also if the store was installed again since this process looked at it.

    `is_kept_back`: what it writes has no effect without a later call. `is_confirmed`: what it reads is acknowledged to
    the caller, so that it waits for replicas, where the URL asks for that. `keys`: those of a handler that it uses.
    `lanes`: the stamp of the lanes whose numbers are in it: under another one nothing is written, and the verb starts
    again.
    """

    script: LuaScript
    words: Sequence[Word]
    any_store: bool = False
    is_kept_back: bool = False
    is_confirmed: bool = False
    keys: Sequence[Word] = ()
    lanes: bytes = b""

    @property
    def writes(self) -> bool:
        """Whether it may have an effect."""
        return self.script.writes and not self.is_kept_back


class Pause(NamedTuple):
    """A request: wait some seconds."""

    seconds: float


class Restart(Exception):  # noqa: N818 - not an error: the verb starts again
    """What a verb has read has changed; nothing was written."""


class AnotherStore(Exception):  # noqa: N818 - as above
    """The store was installed again since the verb began; nothing was written."""


class Guard(NamedTuple):
    """What must hold for a write.

    `kind` h: the field of a hash has this value, empty if there is none; z: the member of a set has this score;
    unlocked: no batch has the lock; otherwise the command that returns the size of the key.
    """

    kind: str
    key: Word
    field: Word
    value: Word


_UNLOCKED = Guard("unlocked", "", "", "")


def sized(commands: Iterable[Command]) -> list[Word]:
    """Return commands as scripts read them: each after the number of its words."""
    return [word for command in commands for word in (len(command), *command)]


class Group(NamedTuple):
    """Commands that are applied together, if all guards hold; the second word of each is a key without the prefix."""

    guards: Sequence[Guard]
    commands: Sequence[Command]

    def words(self) -> list[Word]:
        """Return the group as the script reads it."""
        words: list[Word] = [len(self.guards)]
        for guard in self.guards:
            words += guard
        return [*words, len(self.commands), *sized(self.commands)]


class StagedBatch(NamedTuple):
    """The name of a batch with conditions, and for how many microseconds it has the lock after each of its scripts."""

    name: bytes
    span: int


class Pending:
    """What a verb has collected to be written at its end, or with its next write."""

    def __init__(self, afterwards: list[Verb[None]] | None = None, *, is_whole: bool = False) -> None:
        self.is_whole = is_whole
        """Whether all that the verb writes is collected, also the changes that could be refused one by one."""
        self.guards: list[Guard] = []
        self.commands: list[Command] = []
        self.jobs: list[bytes] = []
        self.lanes = b""
        """The stamp of the lanes whose numbers are in the jobs."""
        self.places: dict[str, int] = {}
        """The place of each job to insert, by id."""
        self.base: int | None = None
        self.seqs: dict[str, int] = {}
        self.locked: dict[str, bytes] = {}
        """The records of rows that were read to be changed, or to decide on an insertion."""
        self.written: dict[bytes, bytes] = {}
        """The new records of jobs, by id: what the verb reads next."""
        self.afterwards: list[Verb[None]] = [] if afterwards is None else afterwards
        """What follows when all is written; if the process ends before, `promote` does it."""
        self.batch: StagedBatch | None = None
        """The batch, if what is collected is staged: see `staging.py`."""
        self.order: Sequence[str] = ()
        """Jobs to insert before all others, in this order."""
        self.late: list[Command] = []
        """What is written when all jobs are inserted."""

    def __bool__(self) -> bool:
        """Whether there is something to write."""
        return bool(self.commands or self.jobs)

    def add(self, group: Group) -> None:
        """Collect the change of a job; of several changes of one job, the first compares it with what was read."""
        self.guards += [guard for guard in group.guards if guard.field not in self.written]
        self.commands += group.commands
        guarded = {guard.field for guard in group.guards}
        for name, _, *words in group.commands:
            if name == "HSET" and words[0] in guarded and isinstance(words[0], bytes) and isinstance(words[1], bytes):
                self.written[words[0]] = words[1]

    def take(self) -> Group:
        """Return what is to be written so far, and forget it."""
        unlocked = [_UNLOCKED] if self else []
        group = Group([*unlocked, *self.guards], self.commands)
        self.guards, self.commands = [], []
        return group

    def closing(self) -> list[Word]:
        """Return all that is to be written, as the script reads it, with guards for all that was read."""
        guarded = {(guard.key, guard.field) for guard in self.guards}
        for job_id, record in self.locked.items() if self.jobs else ():
            id16 = id_of(job_id)
            if (bucket(id16), id16) not in guarded:
                self.guards.append(Guard("h", bucket(id16), id16, record))
        return [1, 1, *self.take().words(), self.seqs_of(range(len(self.jobs))), *self.jobs]

    def commit(self) -> Steps[None]:
        """Write all in one script; raises `Restart` if a guard does not hold."""
        if (yield ScriptCall(COMMIT if self.jobs else WRITE, self.closing(), lanes=self.lanes)) == b"!":
            raise Restart

    def seqs_of(self, places: Sequence[int]) -> bytes:
        """Return the seqs of jobs, if they were taken before."""
        base = self.base
        return b"" if base is None else b"".join(struct.pack(">Q", base + 1 + place) for place in places)


class _OwnRequest:
    """A request without a server."""


THIS = _OwnRequest()
"""For the `Pending` of this verb."""


def pending() -> Steps[Pending]:
    """Return what this verb collects."""
    found: Pending = yield THIS
    return found


def collect(guards: Iterable[Guard], commands: Iterable[Command]) -> Steps[None]:
    """Write these commands at the end of the verb, if everything is still as it was read."""
    found = yield from pending()
    found.guards += guards
    found.commands += commands


def read(*commands: Command) -> Steps[tuple[int, list[Any]]]:
    """Run reading commands in one step; return the store's clock, and the replies."""
    reply = yield ScriptCall(READ, sized(commands))
    return int(reply[0]), reply[1:]


def read_many(commands: Sequence[Command]) -> Steps[tuple[int, list[Any]]]:
    """Run many reading commands in short steps; return the clock of the last, and the replies. For guarded reads."""
    now, replies = yield from read(*commands[:AT_ONCE])
    for start in range(AT_ONCE, len(commands), AT_ONCE):
        now, more = yield from read(*commands[start : start + AT_ONCE])
        replies += more
    return now, replies


def write(groups: Sequence[Group]) -> Steps[list[bool]]:
    """Apply each group whose guards hold; return which."""
    words: list[Word] = [0, len(groups)]
    for group in groups:
        words += group.words()
    answer: bytes = yield ScriptCall(WRITE, [*words, ""])
    return [verdict == ord("1") for verdict in answer]


def size_of(words: Iterable[Word]) -> int:
    """Return about how many bytes words have."""
    return sum(len(word) for word in words if isinstance(word, bytes | str))


def pieces_of(parts: Sequence[T], most: int, size: Callable[[T], int]) -> Iterator[Sequence[T]]:
    """Divide parts into pieces for one step each: at most so many of them, and not too many bytes."""
    start = total = 0
    for end, part in enumerate(parts):
        total += size(part)
        if end > start and (end - start == most or total > PIECE_BYTES):
            yield parts[start:end]
            start, total = end, size(part)
    if parts:
        yield parts[start:]


def change(guards: Sequence[Guard], *commands: Command) -> Steps[None]:
    """Apply commands if the guards hold; raises `Restart` otherwise."""
    if (yield from write([Group(guards, commands)])) != [True]:
        raise Restart


def answered(steps: Steps[T], found: Pending, ready: list[BecameReady]) -> Steps[T]:
    """Answer the requests of a verb that need no server; pass the others on."""
    try:
        asked = next(steps)
        while True:
            if asked is THIS:
                asked = steps.send(found)
            elif isinstance(asked, BecameReady):
                ready.append(asked)
                asked = steps.send(None)
            else:
                asked = steps.send((yield asked))
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        steps.close()
