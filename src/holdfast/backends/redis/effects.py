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
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from holdfast.backends.redis.commands import EffectCommand, Word, reading, writing
from holdfast.backends.redis.scripts import LOOK
from holdfast.backends.redis.steps import ScriptCall
from holdfast.errors import ConfigError
from holdfast.store.steps import Steps, Verb

MOST_COMMANDS: Final = 1_000
"""Commands of one transaction, reads included."""
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
        digest, size, reply = yield ScriptCall(LOOK, command.words, keys=command.keys)
        self._read_size += size
        if self._read_size > MOST_BYTES:
            raise ConfigError(f"the replies of this transaction have more than {MOST_BYTES:,} bytes: {_SMALLER}")
        self.reads.append((digest, command))
        return reply

    def _checked(self, command: EffectCommand) -> EffectCommand:
        for key in command.keys:
            if _STORES.match(key):
                raise ConfigError(f"{command}: this key belongs to Holdfast itself: use another, as .key(…) makes")
        self._size += command.size
        if len(self.commands) + len(self.reads) >= MOST_COMMANDS:
            raise ConfigError(f"a transaction has at most {MOST_COMMANDS:,} commands: {_SMALLER}")
        if self._size > MOST_BYTES:
            raise ConfigError(f"the commands of this transaction have more than {MOST_BYTES:,} bytes: {_SMALLER}")
        return command

    def keys(self) -> tuple[list[bytes], int]:
        """Return all keys, and how many of them, at the beginning, are saved before the commands run."""
        saved = dict.fromkeys(key for command in self.commands[:-1] for key in command.keys)
        others = [key for command in self.commands[-1:] for key in command.keys]
        others += [key for _, command in self.reads for key in command.keys]
        return list(saved | dict.fromkeys(others)), len(saved)
