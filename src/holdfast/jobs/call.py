"""One call of a batch: a job, its argument, and its own end.

A batch ends as one, but each of its calls may end in its own way. A call that the handler has not decided on completes
if the handler returns, and its attempt fails if the handler raises.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Generic, TypeVar

from holdfast.errors import ConfigError
from holdfast.model.duration import to_span
from holdfast.model.job import LeasedJob
from holdfast.model.outcome import COMPLETED, REASON_LIMIT, Cancelled, Failed, Failure, Outcome, Retried, Retry, Snoozed
from holdfast.runtime.failure import describe, describe_reason
from holdfast.runtime.signals import Signal
from holdfast.runtime.text import clean

T = TypeVar("T")
_NOW = timedelta(0)


class EndRules:
    """How the task of the calls of one batch ends an attempt: with a result, and after an error."""

    __slots__ = ("is_closed", "raised", "returned")

    def __init__(
        self,
        returned: Callable[[LeasedJob, object], Outcome],
        raised: Callable[[LeasedJob, BaseException], Outcome],
    ) -> None:
        self.returned = returned
        self.raised = raised
        self.is_closed = False
        """Whether the batch has ended, so that no call of it can be decided on any more."""


class Call(Generic[T]):
    """A job of a batch, as the handler sees it. `Call[Order]` declares the type of its argument."""

    result: object = None
    """The result of the job, if it completes."""

    _outcome: Outcome | None = None

    def __init__(self, job: LeasedJob, argument: T, rules: EndRules) -> None:
        self.job = job
        self.argument = argument
        """What was passed to `enqueue`, decoded to its annotated type."""
        self._rules = rules

    def __repr__(self) -> str:
        """Show the job, never its argument."""
        return f"<call of job {self.job.id} ({self.job.task}), attempt {self.job.attempt}>"

    @property
    def id(self) -> str:
        """The job's id."""
        return self.job.id

    @property
    def fence(self) -> int:
        """The fence, which grows with every claim: pass it to external systems that reject a smaller one."""
        return self.job.fence

    @property
    def cancel_asked(self) -> Signal:
        """Set when a cancel of this job was requested; call `cancel`, or go on and complete it."""
        return self._signal("_cancel_asked")

    @property
    def lease_lost(self) -> Signal:
        """Set when the lease of this job is lost: nothing can be written for it any more."""
        return self._signal("_lease_lost")

    def _signal(self, name: str) -> Signal:
        """Make a signal at its first use, by whichever thread: few calls of a batch need one."""
        signal: Signal = self.__dict__[name] if name in self.__dict__ else self.__dict__.setdefault(name, Signal())
        return signal

    @property
    def is_decided(self) -> bool:
        """Whether the handler has ended this call itself."""
        return self._outcome is not None

    def fail(self, error: BaseException | str) -> None:
        """End the job as failed, even if attempts are left."""
        self._decide(Failed(_failure(error)))

    def retry(self, delay: float | timedelta | None = None, error: BaseException | str | None = None) -> None:
        """End the attempt as failed; the job runs again after `delay`, or as the task's policy says."""
        raised = error if isinstance(error, BaseException) else Retry(reason=_text(error or ""))
        if delay is None:
            self._decide(self._rules.raised(self.job, raised))
            return
        span, failure = to_span(delay, "delay"), describe(raised)
        self._decide(Failed(failure) if self.job.is_last_attempt else Retried(span, failure))

    def release(self, delay: float | timedelta | None = None) -> None:
        """Release the job: it runs again soon, or after `delay`, and this attempt does not count."""
        self._decide(Snoozed(_NOW if delay is None else to_span(delay, "delay")))

    def cancel(self, reason: str = "") -> None:
        """End the job as cancelled."""
        self._decide(Cancelled(clean(_text(reason) or "cancelled by its handler", REASON_LIMIT)))

    def _decide(self, outcome: Outcome) -> None:
        if self._rules.is_closed:
            message = f"job {self.id}: its batch has ended, so an outcome recorded now would never be written"
            raise ConfigError(message)
        if self._outcome is not None:
            message = f"job {self.id}: its outcome is recorded already; an attempt ends once"
            raise ConfigError(message)
        self._outcome = outcome

    # --- for the batch ------------------------------------------------------------------------------------------------

    def outcome(self) -> Outcome:
        """Return the outcome if the handler returns: the recorded one, or the completion."""
        if self._outcome is not None:
            return self._outcome
        return COMPLETED if self.result is None else self._rules.returned(self.job, self.result)

    def outcome_of(self, error: BaseException, *, shared: bool) -> Outcome:
        """Return the outcome if the handler raises: the recorded one, or that of a failed attempt.

        The error of a `shared` batch fails no job for good, because another job may have caused it: such a job runs
        again, alone, and its own error then decides.
        """
        outcome = self._outcome or self._rules.raised(self.job, error)
        return outcome if self._outcome else spared(outcome) if shared else outcome

    def close(self) -> None:
        """Refuse further outcomes of this call and of the others of its batch."""
        self._rules.is_closed = True


def spared(outcome: Outcome) -> Outcome:
    """Return the outcome of an attempt that failed together with others: never the end of the job."""
    return Retried(_NOW, outcome.failure) if isinstance(outcome, Failed) else outcome


def may_share(job: LeasedJob) -> bool:
    """Whether a job may run together with others: not after a failed attempt or a loss, and not in its last attempt.

    So a job that makes its batch fail, or takes its worker down, does that to others only once.
    """
    used = job.attempt - job.excused  # without its properties: this is asked of every job of a batch
    return used <= 1 and used < job.max_attempts and not job.lost


def _failure(error: BaseException | str) -> Failure:
    return describe(error) if isinstance(error, BaseException) else describe_reason("Failed", _text(error))


def _text(text: object) -> str:
    if not isinstance(text, str):
        kind = type(text).__name__
        raise ConfigError(f"an error or a reason of type {kind} cannot be recorded: pass the exception, or a text")
    return text
