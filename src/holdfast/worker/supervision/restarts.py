"""Whether, and how soon, a child is restarted: decisions without a clock or a process.

The delay grows with each death in a row, so that a crash loop costs little; a child that has lived long enough was
healthy, and its death counts as the first. There is no last attempt: the cause may be fixed while the supervisor waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from holdfast.runtime.exit_code import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterable

_DOUBLINGS: Final = 64  # beyond any limit; bounds the exponent


@dataclass(frozen=True, slots=True)
class Delays:
    """How long a seat stays empty after its n-th death in a row, in seconds."""

    first: float = 0.1
    limit: float = 10.0
    healthy_after: float = 60.0

    def after(self, failures: int) -> float:
        """Return the delay after `failures` earlier deaths in a row."""
        return min(self.limit, self.first * 2.0 ** min(failures, _DOUBLINGS))


@dataclass(frozen=True, slots=True)
class ChildExit:
    """How one child ended: its exit code (128 + n for signal n) and how long it had lived, in seconds."""

    code: int
    lived: float

    def is_misconfigured(self, *, within: float = 1.0) -> bool:
        """Return whether the child exited because of its settings, before it can have run a job."""
        return self.code == ExitCode.CONFIGURATION and self.lived <= within


@dataclass(frozen=True, slots=True)
class RestartSeat:
    """Fill the seat again after `delay` seconds; pass `failures` to the next decision."""

    delay: float
    failures: int


def decide(
    end: ChildExit, *, failures: int = 0, stopping: bool = False, replacing: bool = False, delays: Delays | None = None
) -> RestartSeat | None:
    """Return when to fill the seat again, or None when it is done.

    A seat is done when its child exited with 0 by itself, or when the supervisor is stopping. A child that was
    asked to end for a replacement (`replacing`) is followed at once, however it ended.
    """
    if stopping:
        return None
    if replacing:
        return RestartSeat(delay=0.0, failures=0)
    if end.code == ExitCode.FINE:
        return None
    delays = delays or Delays()
    earlier = 0 if end.lived >= delays.healthy_after else failures
    return RestartSeat(delay=delays.after(earlier), failures=earlier + 1)


def is_hopeless(last_ends: Iterable[ChildExit | None]) -> bool:
    """Return whether every seat is empty because of its settings; pass None for a seat that is filled."""
    ends = list(last_ends)
    return bool(ends) and all(end is not None and end.is_misconfigured() for end in ends)
