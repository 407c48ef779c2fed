"""How an attempt ends.

A handler returns, raises, or raises one of the three `Ending`s on purpose. The worker turns that into one of the
values below, which the store writes under the lease.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec


class Ending(Exception):  # noqa: N818 - control flow, not an error
    """The base of what a handler raises to end its attempt on purpose."""


class Retry(Ending):
    """Try again after `delay` (seconds or a timedelta), or when the retry policy says; this attempt counts."""

    def __init__(self, delay: float | timedelta | None = None, reason: str = "") -> None:
        super().__init__(reason or "the handler asked for another attempt")
        self.delay = delay


class Snooze(Ending):
    """Come back after `delay` (seconds or a timedelta); this attempt does not count."""

    def __init__(self, delay: float | timedelta) -> None:
        super().__init__(f"snoozed for {delay}")
        self.delay = delay


class Cancel(Ending):
    """Give the job up for good: it ends as cancelled, with this reason."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "cancelled by its handler")


class Failure(msgspec.Struct, frozen=True, gc=False):
    """What is kept of an error: text only, bounded, never an object to bring back to life.

    `signature` is equal for errors of the same class raised at the same place, so that they can be grouped.
    """

    error_class: str
    message: str
    traceback: str = ""
    signature: str = ""


class Completed(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The handler returned; `result` is its value as JSON, or None."""

    result: str | None = None


class Retried(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The attempt failed; the job is due again after `delay`."""

    delay: timedelta
    failure: Failure


class Snoozed(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The handler asked to come back after `delay`; the attempt is excused."""

    delay: timedelta


class Failed(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The attempt failed and no attempt is left: the job is kept for a person."""

    failure: Failure


class Cancelled(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The handler, or a person, gave the job up."""

    reason: str


class Lost(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The child process that ran the job, alone, died under it.

    What becomes of the job is decided by `model.budget.after_loss`, as for a worker that died.
    """

    failure: Failure


Outcome = Completed | Retried | Snoozed | Failed | Cancelled | Lost
