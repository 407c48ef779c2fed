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

A call that enqueues many jobs with conditions takes the gate first (`lua/gate.lua`): then nothing that it reads of keys
and links changes, and it needs no guards. What it collects is staged in pieces, declared complete by one short script,
and applied piece by piece, by its process or by any other that meets the gate.
"""

from __future__ import annotations

import random
import secrets
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from holdfast.backends.redis.record import bucket, id_of
from holdfast.backends.redis.scripts import COMMIT, READ, SPREAD, STAGE, WRITE, LuaScript
from holdfast.errors import ConfigError, JobNotFound, OutcomeUnknown, StoreUnavailable, UniqueConflict
from holdfast.store.steps import BecameReady, Ready, Steps, Verb

T = TypeVar("T")
Word = bytes | str | int | float
Command = Sequence[Word]
_STARTS = 50  # of a verb whose guards do not hold
_INSTALLATIONS = 3  # of a store while a verb runs
_AT_ONCE = 500  # commands of one step
_PAUSE = 0.002  # seconds before a verb starts again, up to ten times as long after many
_GATED = 2_000_000  # microseconds for which a batch has the gate after each of its scripts
_OPEN = 2**63 - 1  # of a batch that is enqueued: until it is inserted
_GATE_WAITS = 3000  # pauses of ten milliseconds, on the average
PIECE = 250  # jobs that one script inserts of a batch
_COMMANDS = 500  # commands that one script applies of a batch
_WORDS = 500  # that one script stages, and the rest of a piece


class ScriptCall(NamedTuple):
    """A request: run a script. `any_store`: also if the store was installed again since this process looked at it.

    `is_kept_back`: what it writes has no effect without a later call. `is_confirmed`: what it reads is acknowledged to
    the caller, so that it waits for replicas, where the URL asks for that. `keys`: those of a handler that it uses.
    """

    script: LuaScript
    words: Sequence[Word]
    any_store: bool = False
    is_kept_back: bool = False
    is_confirmed: bool = False
    keys: Sequence[Word] = ()

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

    `kind` h: the field of a hash has this value, empty if there is none; z: the member of a set has this score; gate:
    no batch has it; otherwise the command that returns the size of the key.
    """

    kind: str
    key: Word
    field: Word
    value: Word


_NO_GATE = Guard("gate", "", "", "")


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

    def __init__(self, afterwards: list[Verb[None]] | None = None, *, is_whole: bool = False) -> None:
        self.is_whole = is_whole
        """Whether all that the verb writes is collected, also the changes that could be refused one by one."""
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
        self.afterwards: list[Verb[None]] = [] if afterwards is None else afterwards
        """What follows when all is written; if the process ends before, `promote` does it."""
        self.gate: bytes | None = None
        """The name of the batch, if what is collected is staged."""
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
        gate = [_NO_GATE] if self else []
        group = Group([*gate, *self.guards], self.commands)
        self.guards, self.commands = [], []
        return group

    def give_up(self) -> Steps[None]:
        """Let others pass the gate: nothing was enqueued."""
        if self.gate is not None:
            yield ScriptCall(STAGE, [self.gate, 0, 0, 0], is_kept_back=True)

    def closing(self) -> list[Word]:
        """Return all that is to be written, as the script reads it, with guards for all that was read."""
        guarded = {(guard.key, guard.field) for guard in self.guards}
        for job_id, record in self.locked.items() if self.jobs else ():
            id16 = id_of(job_id)
            if (bucket(id16), id16) not in guarded:
                self.guards.append(Guard("h", bucket(id16), id16, record))
        return [1, 1, *self.take().words(), self._seqs_of(range(len(self.jobs))), *self.jobs]

    def commit(self) -> Steps[None]:
        """Write all; raises `Restart` if a guard does not hold."""
        if self.gate is not None:
            yield from stage(self.gate, self._pieces(), _GATED)
            yield from spread(self.gate)
        elif (yield ScriptCall(COMMIT if self.jobs else WRITE, self.closing())) == b"!":
            raise Restart

    def _seqs_of(self, places: Sequence[int]) -> bytes:
        """Return the seqs of jobs, if they were taken before."""
        base = self.base
        return b"" if base is None else b"".join(struct.pack(">Q", base + 1 + place) for place in places)

    def _pieces(self) -> Iterator[list[Word]]:
        """Yield what is staged: keys and links, then jobs, those that wait first, then what is to be decided."""
        first = [self.places[job_id] for job_id in self.order]
        places = [*first, *sorted(set(range(len(self.jobs))) - set(first))]
        yield from _of_commands(self.commands)
        for start in range(0, len(places), PIECE):
            some = places[start : start + PIECE]
            yield [0, self._seqs_of(some), *(self.jobs[place] for place in some)]
        yield from _of_commands(self.late)


def _of_commands(commands: Sequence[Command]) -> Iterator[list[Word]]:
    for start in range(0, len(commands), _COMMANDS):
        yield [1, *Group((), _joined(commands[start : start + _COMMANDS])).words(), ""]


def _joined(commands: Sequence[Command]) -> list[Command]:
    """Return fewer commands that do the same: those for one hash or set are one."""
    joined: dict[tuple[Word, ...], list[Word]] = {}
    for number, (name, key, *words) in enumerate(commands):
        place = (name, key) if name in {"HSET", "SADD"} else (number,)
        joined.setdefault(place, [name, key]).extend(words)
    return list(joined.values())


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


def take_gate() -> Steps[None]:
    """Stage what this verb collects; until it is written, no other call writes conditions, or deletes jobs."""
    name = secrets.token_bytes(16)
    if not (yield ScriptCall(STAGE, [name, 0, _GATED, 0], is_kept_back=True)):
        raise Restart
    (yield from pending()).gate = name


def stage(name: bytes, pieces: Iterable[Sequence[Word]], gated: Word = "") -> Steps[None]:
    """Keep pieces aside, which has no effect before the last call: from then on they are enqueued."""
    words: list[Word] = []
    before = 0
    for piece in pieces:
        words += (len(piece), *piece)
        if len(words) > _WORDS:
            yield from _stage([name, 0, gated, before, *words], is_last=False)
            before += len(words)
            words = []
    yield from _stage([name, 1, gated, before, *words], is_last=True)


def _stage(words: Sequence[Word], *, is_last: bool) -> Steps[None]:
    if not (yield ScriptCall(STAGE, words, is_kept_back=not is_last)):
        raise Restart  # the gate has expired, or a failover has lost what was kept


def spread(name: bytes) -> Steps[None]:
    """Apply the pieces of a batch, after those of batches before it. Workers do the same."""
    while (yield ScriptCall(SPREAD, [name])):
        pass


def _pass_gate() -> Steps[None]:
    """Wait while a batch has the gate; go on with it if it is enqueued."""
    for _ in range(_GATE_WAITS):
        now, (text,) = yield from read(("GET", "gate"))
        until = 0 if text is None else int.from_bytes(text[16:], "big")
        if until <= now:
            return
        if until == _OPEN:
            yield ScriptCall(SPREAD, [""], is_kept_back=True)
        else:
            yield Pause(random.uniform(0, 10 * _PAUSE))  # noqa: S311 - not a secret
    raise StoreUnavailable("other calls enqueue very many jobs with conditions: try again")


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
    afterwards: list[Verb[None]] = []
    for start in range(_STARTS):
        if start:
            yield Pause(random.uniform(0, _PAUSE * min(start, 10)))  # noqa: S311 - not a secret
            yield from _pass_gate()
        found = Pending(afterwards)
        seen: list[BecameReady] = []
        try:
            answer = yield from _answered(verb(), found, seen)
            yield from found.commit() if found else found.give_up()
        except Restart:
            yield from found.give_up()
            continue
        except (ConfigError, JobNotFound, UniqueConflict):
            yield from found.give_up()
            raise
        with suppress(StoreUnavailable, OutcomeUnknown):
            for following in afterwards:
                yield from _answered(following(), Pending(), seen)
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
