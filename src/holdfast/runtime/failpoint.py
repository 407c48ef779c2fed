"""Named points at which a test can make this process die, stop or wait; for tests alone.

A point is armed by the environment variable `HOLDFAST_FAILPOINTS` of the process, read once when it starts:

```text
   HOLDFAST_FAILPOINTS=after_claim=kill               killed (SIGKILL), as by the system when memory runs out
                       before_commit=stop             stopped (SIGSTOP), as a paused machine, until SIGCONT
                       before_flush=exit:3            ended at once with exit code 3
                       after_effect=sleep:2           blocked for two seconds, with the event loop if it is the loop's
                       before_effect=pause:/tmp/gate  blocked until somebody has opened the FIFO to write, and closed it
                       after_claim=kill@3             at the third time in this process, and only then
```

Several are separated by commas. Where nothing is armed, a point costs one look into an empty dict.
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
    "after_claim",  # the store has leased jobs to this worker, which has not taken them in yet
    "before_effect",  # a handler's transaction is open, nothing is written
    "after_effect",  # the handler has written its effect
    "before_commit",  # the completion is written too; for consumers perhaps committed: a store may do both at once
    "after_commit",  # both are committed, and nobody here has been told
    "before_flush",  # attempts have ended, and their finishes are only in memory
    "after_flush",  # the finishes are written, and the worker has not noted it yet
)
_USAGE: Final = "write name=action, with the action one of kill, stop, exit:<code>, sleep:<seconds>, pause:<fifo>"


def _stop() -> None:
    """Stop the process, but let what other threads have under way come to its end first.

    A process that is stopped inside a transaction of SQLite keeps the write lock from everybody. Points inside a
    transaction are for that; elsewhere it would be chance.
    """
    time.sleep(_SETTLE)
    signal.raise_signal(signal.SIGSTOP)


def failpoint(name: str) -> None:
    """Do what is armed at this point, if anything is."""
    point = _armed.get(name)
    if point is not None:
        point.hit()


class Point:
    """What happens at one point, each time or at one time only."""

    def __init__(self, action: Callable[[], None], at: int | None) -> None:
        self._action = action
        self._at = at
        self._hits = itertools.count(1)  # counts atomically: several threads may come by

    def hit(self) -> None:
        """Count, and act if it is time."""
        if self._at in {None, next(self._hits)}:
            self._action()


def parse(text: str) -> dict[str, Point]:
    """Read the points that a text arms; raises `ConfigError` for what is none."""
    return dict(_parse_one(part) for part in text.split(",") if part.strip())


def _parse_one(text: str) -> tuple[str, Point]:
    name, _, what = text.strip().partition("=")
    if name not in NAMES:
        raise ConfigError(f"{VARIABLE}: there is no failpoint {name!r}; there are {', '.join(NAMES)}")
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
                raise ConfigError(f"{VARIABLE}: {text!r} is not understood: {_USAGE}")
    except ValueError:
        raise ConfigError(f"{VARIABLE}: {text!r} has no number where one is needed: {_USAGE}") from None


def _pause(fifo: Path) -> None:
    """Wait for a writer to come and to go."""
    with fifo.open("rb") as gate:
        gate.read()


_armed: Final = parse(os.environ.get(VARIABLE, ""))
