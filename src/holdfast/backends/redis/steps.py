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
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from holdfast.backends.redis.record import bucket, id_of
from holdfast.backends.redis.scripts import COMMIT, READ, WRITE, LuaScript
from holdfast.errors import StoreUnavailable
from holdfast.store.steps import BecameReady, Ready, Steps, Verb

T = TypeVar("T")
Word = bytes | str | int | float
Command = Sequence[Word]
_STARTS = 50  # of a verb whose guards do not hold
_INSTALLATIONS = 3  # of a store while a verb runs
_AT_ONCE = 1000  # commands of one step
_PAUSE = 0.002  # seconds before a verb starts again, up to ten times as long after many


class ScriptCall(NamedTuple):
    """A request: run a script. `any_store`: also if the store was installed again since this process looked at it.

    `is_kept_back`: what it writes has no effect without a later call.
    """

    script: LuaScript
    words: Sequence[Word]
    any_store: bool = False
    is_kept_back: bool = False

    @property
    def writes(self) -> bool:
        """Whether it may have an effect."""
        return self.script.writes and not self.is_kept_back


class Pause(NamedTuple):
    """A request: wait some seconds."""

    seconds: float


class Restart(Exception):  # noqa: N818 - not an error: the verb starts again
    """What a verb has read is out of date; nothing was written."""


class AnotherStore(Exception):  # noqa: N818 - as above
    """The store was installed again since the verb began; nothing was written."""


class Guard(NamedTuple):
    """What must hold for a write.

    `kind` h: the field of a hash has this value, empty if there is none; z: the member of a set has this score;
    otherwise the command that returns the size of the key.
    """

    kind: str
    key: Word
    field: Word
    value: Word


class Group(NamedTuple):
    """Commands that are applied together, if all guards hold; the second word of each is a key without the prefix."""

    guards: Sequence[Guard]
    commands: Sequence[Command]

    def words(self) -> list[Word]:
        """Return the group as the script reads it."""
        words: list[Word] = [len(self.guards)]
        for guard in self.guards:
            words += guard
        words.append(len(self.commands))
        for command in self.commands:
            words += (len(command), *command)
        return words


class Pending:
    """What a verb has collected to be written at its end, or with its next write."""

    def __init__(self) -> None:
        self.guards: list[Guard] = []
        self.commands: list[Command] = []
        self.jobs: list[bytes] = []
        self.places: dict[str, int] = {}
        """The place of each job to insert, by id."""
        self.base: int | None = None
        self.seqs: dict[str, int] = {}
        self.locked: dict[str, bytes] = {}
        """The records of rows that were read to be changed, or to decide on an insertion."""
        self.written: dict[bytes, bytes] = {}
        """The new records of jobs, by id: what the verb reads next."""

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
        group = Group(self.guards, self.commands)
        self.guards, self.commands = [], []
        return group

    def commit(self) -> Steps[None]:
        """Write all; raises `Restart` if a guard does not hold."""
        guarded = {(guard.key, guard.field) for guard in self.guards}
        for job_id, record in self.locked.items() if self.jobs else ():
            id16 = id_of(job_id)
            if (bucket(id16), id16) not in guarded:
                self.guards.append(Guard("h", bucket(id16), id16, record))
        words = [1, 1, *self.take().words(), "" if self.base is None else self.base, *self.jobs]
        if (yield ScriptCall(COMMIT if self.jobs else WRITE, words)) == b"!":
            raise Restart


class _Request:
    """A request without a server."""


THIS = _Request()
"""For the `Pending` of this verb."""
BIND = _Request()
"""All calls of this verb are for the store as it is known now: its numbers of lanes mean nothing in another one."""


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
    words: list[Word] = []
    for command in commands:
        words += (len(command), *command)
    reply = yield ScriptCall(READ, words)
    return int(reply[0]), reply[1:]


def read_many(commands: Sequence[Command]) -> Steps[tuple[int, list[Any]]]:
    """Run many reading commands in short steps; return the clock of the last, and the replies. For guarded reads."""
    now, replies = yield from read(*commands[:_AT_ONCE])
    for start in range(_AT_ONCE, len(commands), _AT_ONCE):
        now, more = yield from read(*commands[start : start + _AT_ONCE])
        replies += more
    return now, replies


def write(groups: Sequence[Group]) -> Steps[list[bool]]:
    """Apply each group whose guards hold; return which."""
    words: list[Word] = [0, len(groups)]
    for group in groups:
        words += group.words()
    answer: bytes = yield ScriptCall(WRITE, [*words, ""])
    return [verdict == ord("1") for verdict in answer]


def change(guards: Sequence[Guard], *commands: Command) -> Steps[None]:
    """Apply commands if the guards hold; raises `Restart` otherwise."""
    if (yield from write([Group(guards, commands)])) != [True]:
        raise Restart


def on_one_store(verb: Verb[T], ready: Ready, known: Verb[None]) -> Steps[T]:
    """Run a verb; if the store was installed again, read its lanes with `known` and start again."""
    for _ in range(_INSTALLATIONS):
        yield from known()
        yield BIND
        try:
            return (yield from whole(verb, ready))
        except AnotherStore:
            continue
    raise StoreUnavailable("the store is installed again and again: try again when that is done")


def whole(verb: Verb[T], ready: Ready) -> Steps[T]:
    """Run a verb with what it collects, from its beginning until its guards hold."""
    for start in range(_STARTS):
        if start:
            yield Pause(random.uniform(0, _PAUSE * min(start, 10)))  # noqa: S311 - not a secret
        found = Pending()
        seen: list[BecameReady] = []
        try:
            answer = yield from _answered(verb(), found, seen)
            if found:
                yield from found.commit()
        except Restart:
            continue
        for reported in seen:
            ready.add(reported)
        return answer
    raise StoreUnavailable("what this call needs changes faster than it can be written: try again")


def _answered(steps: Steps[T], found: Pending, seen: list[BecameReady]) -> Steps[T]:
    """Answer the requests that need no server; pass the others on."""
    try:
        asked = next(steps)
        while True:
            if asked is THIS:
                asked = steps.send(found)
            elif isinstance(asked, BecameReady):
                seen.append(asked)
                asked = steps.send(None)
            else:
                asked = steps.send((yield asked))
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        steps.close()
