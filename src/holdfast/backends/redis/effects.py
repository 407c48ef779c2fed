"""What a handler uses in its transaction on Redis: it reads at once, and queues what it writes.

```text
   begin: is the lease held? ─▶ the handler reads, and queues commands and jobs ─▶ one script
                                                                                        │
       fence current ─▶ reads repeated: same replies ─▶ commands ─▶ jobs enqueued ─▶ completed
         │ stale             │ changed                     │ one fails
         ▼                   ▼                             ▼
     LeaseLost       TransactionConflict          what was written is undone: StoreError
```

Nothing is locked, and no one waits: other clients may write between a read and the end of the block. The script
repeats the reads, so that an effect is never computed from what is no longer true.

What the transaction enqueues and ends is decided by the verbs of single calls. They read at once, and what they would
write is recorded in place of being sent. If a guard of theirs does not hold, they are run again; the handler is not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from holdfast.backends.redis.effect_commands import EffectCommand, reading, writing
from holdfast.backends.redis.job_rows import fenced
from holdfast.backends.redis.scripts import COMPLETE, EFFECT, HANDLER_READ, RESERVE_SEQS
from holdfast.backends.redis.steps import Pending, Restart, ScriptCall, Word, answered, sized
from holdfast.errors import ConfigError, HoldfastError, PrivilegeMissing, StoreError, TransactionConflict
from holdfast.model.job import Lease
from holdfast.store.steps import BecameReady, Steps, Verb

T = TypeVar("T")
_LEASE_BYTES = 32  # see `fenced`
MOST_COMMANDS: Final = 1_000
"""Commands of one transaction, reads included."""
MOST_KEYS: Final = 1_000
"""Keys that all of them name: each is looked at, and most are copied."""
MOST_BYTES: Final = 1_000_000
"""Bytes of the words of all of them, and also of the replies to the reads."""
MOST_SAVED: Final = 1_000_000
"""Bytes of memory of all keys that would have to be restored."""
_STORES = re.compile(rb"\{holdfast:[^}]*\}:")
_SMALLER = "do less in one transaction, or in smaller batches: it is one script, and all other clients wait for it"


class Effects:
    """Reads and queues commands. In an async handler `read` is awaited; `queue` never is.

    Each word of a command is one argument, its keys among them, as in `queue("HSET", "order:7", "state", "paid")`.
    Replies are as the server sends them: `bytes`, `int`, None and lists of these.
    """

    def __init__(self, prefix: str, check_open: Callable[[], None], run: Callable[[Verb[Any]], Any]) -> None:
        self.commands: list[EffectCommand] = []
        """What is queued."""
        self.reads: list[tuple[bytes, EffectCommand]] = []
        """What was read, each with the digest of the reply."""
        self._tag = prefix.rstrip(":")
        self._check_open = check_open
        self._run = run
        self._size = 0
        self._keys: set[bytes] = set()
        self._read_size = 0

    def key(self, name: str) -> str:
        """Return a key in the hash slot of the store; in a cluster, all keys of a transaction must be such."""
        return f"{self._tag}/{name}"

    def queue(self, *words: Word) -> None:
        """Queue a writing command; it runs when the block is left, together with the fenced completion.

        Raises `ConfigError` if the command is not allowed, or the transaction becomes too large.
        """
        self._check_open()
        self.commands.append(self._checked(writing(words)))

    def read(self, *words: Word) -> Any:
        """Run a reading command now, and return its reply. It does not see what is queued.

        If the reply is no longer the same when the block is left, nothing is written, and `TransactionConflict` is
        raised: the attempt is repeated, and does not count.
        """
        self._check_open()
        command = self._checked(reading(words))
        return self._run(lambda: self._look(command))

    def _look(self, command: EffectCommand) -> Steps[Any]:
        most = MOST_BYTES - self._read_size
        digest, size, *reply = yield ScriptCall(HANDLER_READ, [most, *command.words], keys=command.keys)
        self._read_size += size
        if self._read_size > MOST_BYTES:
            raise ConfigError(f"the replies of this transaction have more than {MOST_BYTES:,} bytes: {_SMALLER}")
        self.reads.append((digest, command))
        return reply[0] if reply else None

    def _checked(self, command: EffectCommand) -> EffectCommand:
        for key in command.keys:
            if _STORES.match(key):
                raise ConfigError(f"{command}: this key belongs to Holdfast itself: use another, as .key(…) makes")
        size, new = self._size + command.size, set(command.keys) - self._keys
        if len(self.commands) + len(self.reads) >= MOST_COMMANDS:
            raise ConfigError(f"a transaction has at most {MOST_COMMANDS:,} commands: {_SMALLER}")
        if len(self._keys) + len(new) > MOST_KEYS:
            raise ConfigError(f"the commands of this transaction name more than {MOST_KEYS:,} keys: {_SMALLER}")
        if size > MOST_BYTES:
            raise ConfigError(f"the commands of this transaction have more than {MOST_BYTES:,} bytes: {_SMALLER}")
        self._size = size
        self._keys |= new
        return command

    def keys(self) -> tuple[list[bytes], int]:
        """Return all keys, and how many of them, at the beginning, are saved before the commands run."""
        saved = dict.fromkeys(key for command in self.commands[:-1] for key in command.keys)
        others = [key for command in self.commands[-1:] for key in command.keys]
        others += [key for _, command in self.reads for key in command.keys]
        return list(saved | dict.fromkeys(others)), len(saved)


class Recorded:
    """What the verbs of a transaction would have written."""

    def __init__(self, *, is_trial: bool = False) -> None:
        self.is_trial = is_trial
        """Whether only the answer is wanted."""
        self.pending = Pending(is_whole=True)
        self.completions: Sequence[Word] = ()
        self.ready: list[BecameReady] = []

    def record(self, steps: Steps[T]) -> Steps[T]:
        """Run a verb up to its end; pass on only what it reads."""
        inside = answered(steps, self.pending, self.ready)
        try:
            asked = next(inside)
            while True:
                if asked.script is COMPLETE:
                    self.completions = asked.words
                    asked = inside.send((b"1" * (len(asked.words[0]) // _LEASE_BYTES), 0, (), 0))
                elif asked.script is RESERVE_SEQS and self.is_trial:
                    asked = inside.send(asked.words[0])
                elif asked.writes:
                    raise AssertionError(asked.script.name)
                else:
                    asked = inside.send((yield asked))
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        finally:
            inside.close()


class StaleLeases(Exception):  # noqa: N818 - not yet an error: the transaction says what is lost
    """Some leases are no longer held; nothing was written."""

    def __init__(self, held: Sequence[Lease]) -> None:
        super().__init__()
        self.held = held


def apply(effects: Effects, leases: Sequence[Lease], recorded: Recorded) -> Steps[Sequence[bytes]]:
    """Write all of it under all of these leases, or nothing, and raise why. Return the limit keys to look at."""
    words: list[Word] = [fenced(leases), len(effects.reads)]
    for digest, command in effects.reads:
        words += (digest, len(command.words), *command.words)
    keys, saved = effects.keys()
    words += (saved, MOST_SAVED, len(effects.commands), *sized(command.words for command in effects.commands))
    # Also of an enqueue that only found a job: the answer that the handler got must be true when the effect is written.
    is_guarded = bool(recorded.pending or recorded.pending.guards)
    words += sized([recorded.pending.closing() if is_guarded else (), recorded.completions])
    outcome, *facts = yield ScriptCall(EFFECT, words, keys=keys, lanes=recorded.pending.lanes)
    match outcome:
        case b"done":
            if facts[0] or facts[2]:
                recorded.ready.append(BecameReady(parents_changed=facts[0] > 0))
            key_sets: Sequence[bytes] = facts[1]
            return key_sets
        case b"again":
            raise Restart
        case b"lost":
            raise StaleLeases([lease for lease, held in zip(leases, facts[0].decode(), strict=True) if held == "1"])
        case b"changed":
            raise TransactionConflict(
                f"{effects.reads[facts[0] - 1][1]}: the reply has changed since. Nothing was written"
            )
        case b"large":
            key = facts[0].decode("utf-8", "replace")
            raise ConfigError(
                f"{key}: what would be restored if a later command failed takes more than {MOST_SAVED:,} bytes: "
                "queue the command on a large key as the last one, which needs no copy, or split the key. Nothing was "
                "written"
            )
        case _:
            raise _failed(effects, *facts)


def _failed(effects: Effects, number: int, error: bytes) -> HoldfastError:
    text = error.decode("utf-8", "replace")
    if text == "NOPERM":
        which = f"run {effects.commands[number - 1]}" if number else "DEL and RESTORE keys, to undo a failed effect"
        return PrivilegeMissing(f"the user of this connection may not {which}: extend its ACL. Nothing was written")
    which = f"{effects.commands[number - 1]}, command {number} of {len(effects.commands)} of the effect"
    return StoreError(f"{which}: {text}. Nothing was written")
