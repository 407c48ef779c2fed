"""How an attempt ends.

A handler returns, raises an error, or raises one of the three `Ending`s on purpose. The worker turns that into one of
the outcomes below, which the store writes under the lease.

```text
   handler returns            Completed ──▶ completed
   raises Snooze              Snoozed   ──▶ scheduled   the attempt does not count
   raises an error or Retry   Retried   ──▶ scheduled   while attempts are left
                              Failed    ──▶ failed      after the last attempt
   raises Cancel              Cancelled ──▶ cancelled
   its child process died     Lost      ──▶ ready or failed, see `model.budget`
```
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final, Literal

import msgspec


class Ending(Exception):  # noqa: N818 - control flow, not an error
    """The base of the exceptions by which a handler ends its attempt on purpose."""


REASON_LIMIT: Final = 2048
"""The largest size of the reason of a cancellation, in bytes."""

ASKED: Final = "the handler asked for another attempt"


class Retry(Ending):
    """Run the job again after `delay` (seconds or a timedelta), or as the retry policy decides; the attempt counts."""

    def __init__(self, delay: float | timedelta | None = None, reason: str = "") -> None:
        super().__init__(reason or ASKED)
        self.delay = delay


class Snooze(Ending):
    """Run the job again after `delay` (seconds or a timedelta); the attempt does not count."""

    def __init__(self, delay: float | timedelta) -> None:
        super().__init__(f"snoozed for {delay}")
        self.delay = delay


class Cancel(Ending):
    """End the job as cancelled, with this reason."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "cancelled by its handler")


class Failure(msgspec.Struct, frozen=True, gc=False):
    """An error as it is stored: text of bounded size, never a serialised object.

    `signature` is equal for errors of the same class raised at the same place; errors are grouped by it. `location`,
    the file and line in user code, is only logged.
    """

    error_class: str
    message: str
    traceback: str = ""
    signature: str = ""
    location: str = ""


class Completed(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The handler returned; `result` is the returned value as JSON, or None."""

    result: str | None = None


COMPLETED: Final = Completed()
"""The outcome of nearly every attempt; one shared instance, since it has no data."""


class Retried(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The attempt failed, or its handler asked for another by `Retry`; the job is due again after `delay`."""

    delay: timedelta
    failure: Failure
    is_asked: bool = False


class Snoozed(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The handler raised `Snooze`; the job is due again after `delay`, and the attempt is excused."""

    delay: timedelta


class Failed(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The attempt failed and no attempt is left; the job is kept for inspection."""

    failure: Failure


class Cancelled(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The job was cancelled, by its handler or by an operator."""

    reason: str


class Lost(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The child process that ran only this job died during the attempt.

    `model.budget.after_loss` decides what happens to the job, as it does when a worker dies.
    """

    failure: Failure


Outcome = Completed | Retried | Snoozed | Failed | Cancelled | Lost

OutcomeWord = Literal["completed", "retried", "snoozed", "failed", "cancelled", "lost"]
OUTCOME_WORDS: Final[Mapping[type[Outcome], OutcomeWord]] = {
    Completed: "completed",
    Retried: "retried",
    Snoozed: "snoozed",
    Failed: "failed",
    Cancelled: "cancelled",
    Lost: "lost",
}
"""What the outcome of an attempt is called in stores and for observers."""
