"""Collects what a handler's transaction enqueues and ends, and writes it with the effect, in one script.

The verbs are those of single calls. They read at once, and what they would write is recorded in place of being sent. If
a guard of theirs does not hold, all of it is decided again; the handler is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from holdfast.backends.redis.effects import MOST_SAVED, Effects
from holdfast.backends.redis.job_rows import fenced
from holdfast.backends.redis.scripts import COMPLETE, EFFECT, TAKE
from holdfast.backends.redis.steps import THIS, Pending, Restart, ScriptCall, Word
from holdfast.errors import ConfigError, HoldfastError, PrivilegeMissing, StoreError, TransactionConflict
from holdfast.model.job import Lease
from holdfast.store.steps import BecameReady, Steps

T = TypeVar("T")
_LEASE_BYTES = 32  # see `fenced`


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
        try:
            asked = next(steps)
            while True:
                if asked is THIS:
                    asked = steps.send(self.pending)
                elif isinstance(asked, BecameReady):
                    self.ready.append(asked)
                    asked = steps.send(None)
                elif isinstance(asked, ScriptCall) and asked.script is COMPLETE:
                    self.completions = asked.words
                    leases = asked.words[0]
                    assert isinstance(leases, bytes)  # noqa: S101 - see `fenced`
                    asked = steps.send((b"1" * (len(leases) // _LEASE_BYTES), 0, ()))
                elif isinstance(asked, ScriptCall) and asked.script is TAKE and self.is_trial:
                    asked = steps.send(asked.words[0])
                elif isinstance(asked, ScriptCall) and asked.writes:
                    raise AssertionError(asked.script.name)
                else:
                    asked = steps.send((yield asked))
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        finally:
            steps.close()


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
    words += (saved, MOST_SAVED, len(effects.commands))
    for command in effects.commands:
        words += (len(command.words), *command.words)
    change = recorded.pending.closing() if recorded.pending else ()
    words += (len(change), *change, len(recorded.completions), *recorded.completions)
    outcome, *facts = yield ScriptCall(EFFECT, words, keys=keys)
    match outcome:
        case b"done":
            if facts[0]:
                recorded.ready.append(BecameReady(parents_changed=True))
            lines: Sequence[bytes] = facts[1]
            return lines
        case b"again":
            raise Restart
        case b"lost":
            raise StaleLeases([lease for lease, held in zip(leases, facts[0].decode(), strict=True) if held == "1"])
        case b"changed":
            raise TransactionConflict(
                f"{effects.reads[facts[0] - 1][1]}: the reply is another one by now. Nothing was written"
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
