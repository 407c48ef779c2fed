"""Failpoints: named points at which a test can make this process die, stop or wait. Only for tests.

A failpoint is armed by the environment variable `HOLDFAST_FAILPOINTS`, which is read once when the process starts:

```text
   HOLDFAST_FAILPOINTS=after_claim=kill               SIGKILL, as from the kernel when memory runs out
                       before_commit=stop             SIGSTOP, like a paused machine, until SIGCONT
                       before_flush=exit:3            exit at once with code 3
                       after_effect=sleep:2           block the thread for two seconds; in the loop's thread, the loop
                       before_effect=pause:/tmp/gate  block until a writer has opened the FIFO and closed it again
                       after_claim=kill@3             only the third time in this process
```

Several failpoints are separated by commas. A failpoint that is not armed costs one lookup in an empty dict.
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from holdfast.errors import ConfigError

VARIABLE: Final = "HOLDFAST_FAILPOINTS"
_SETTLE = 0.05  # seconds
NAMES: Final = (
    "after_claim",  # the store has leased jobs to this worker, which has not processed the reply yet
    "before_effect",  # a handler's transaction is open and nothing is written
    "after_effect",  # the handler has written its effect
    "before_commit",  # the end of the attempt is written too, and perhaps committed: a store may do both at once
    "after_commit",  # both are committed, and this process has not processed the reply yet
    "before_flush",  # attempts have ended, and their outcomes are only in memory
    "after_flush",  # the outcomes are written, and the worker has not processed the reply yet
)
IN_TRANSACTIONS: Final = NAMES[1:5]
"""Those that only a handler reaches whose transaction the store joins."""
_USAGE: Final = "write name=action, with the action one of kill, stop, exit:<code>, sleep:<seconds>, pause:<fifo>"


def _stop() -> None:
    """Stop the process, but let operations in other threads complete first.

    A process that is stopped inside an SQLite transaction keeps the write lock. Failpoints inside a transaction test
    exactly that; at the others it would depend on chance.
    """
    time.sleep(_SETTLE)
    signal.raise_signal(signal.SIGSTOP)


def failpoint(name: str) -> None:
    """Execute the action that is armed at this failpoint, if any."""
    point = _armed.get(name)
    if point is not None:
        point.hit()


class Point:
    """The action of one failpoint, executed every time or only the n-th time."""

    def __init__(self, action: Callable[[], None], at: int | None) -> None:
        self._action = action
        self._at = at
        self._hits = itertools.count(1)  # atomic: several threads may reach the failpoint

    def hit(self) -> None:
        """Count one hit, and execute the action if it is due."""
        if self._at in {None, next(self._hits)}:
            self._action()


def parse(text: str) -> dict[str, Point]:
    """Return the failpoints armed by a setting; raise `ConfigError` if it is invalid."""
    return dict(_parse_one(part) for part in text.split(",") if part.strip())


def _parse_one(text: str) -> tuple[str, Point]:
    name, _, what = text.strip().partition("=")
    if name not in NAMES:
        raise ConfigError(f"{VARIABLE}: unknown failpoint {name!r}: use one of {', '.join(NAMES)}")
    at: int | None = None
    head, mark, count = what.rpartition("@")
    if mark and count.isdigit():
        what, at = head, int(count)
    return name, Point(_action(text, what), at)


def _action(text: str, what: str) -> Callable[[], None]:
    verb, _, argument = what.partition(":")
    try:
        match verb, bool(argument):
            case "kill", False:
                return lambda: signal.raise_signal(signal.SIGKILL)
            case "stop", False:
                return _stop
            case "exit", True:
                code = int(argument)
                return lambda: os._exit(code)
            case "sleep", True:
                seconds = float(argument)
                return lambda: time.sleep(seconds)
            case "pause", True:
                return lambda: _pause(Path(argument))
            case _:
                raise ConfigError(f"{VARIABLE}: {text!r} is invalid: {_USAGE}")
    except ValueError:
        raise ConfigError(f"{VARIABLE}: {text!r} needs a number after the colon: {_USAGE}") from None


def _pause(fifo: Path) -> None:
    """Block until a writer has opened the FIFO and closed it."""
    with fifo.open("rb") as gate:
        gate.read()


_armed: Final = parse(os.environ.get(VARIABLE, ""))
