"""Every error that Holdfast raises.

```text
HoldfastError
├── ConfigError              a setting, a name, a URL or a call is invalid; the message names the remedy
├── Unsupported              this store cannot do that; the message says why
├── NotFound
│   ├── CategoryNotFound
│   ├── ConsumerNotFound
│   ├── JobNotFound
│   ├── ScheduleNotFound
│   └── TaskNotFound
├── PayloadError             arguments, headers or a result cannot be encoded or decoded
│   └── ArgumentsError       the call does not match the task's signature
├── JobFailed                the job whose result was awaited has failed
├── JobCancelled             the job whose result was awaited was cancelled
├── UniqueConflict           another job holds the unique key; nothing was enqueued or retried
├── LeaseLost                the fence is stale; nothing was written
├── VersionConflict          a stream is not at the version that an append expected; nothing was written
├── TransactionExpired       a handler's transaction was open too long and was rolled back
└── StoreError
    ├── StoreUnavailable     the store cannot be reached or is overloaded; nothing was written
    │   └── TransactionConflict   the store rolled a transaction back in favour of another one
    ├── OutcomeUnknown       the store may or may not have committed; repeat with the same ids
    ├── PrivilegeMissing     the role of the connection may not do that; the message names the GRANTs
    └── SchemaMismatch       the tables are missing, older or newer than this version
```

The exceptions by which a handler ends an attempt on purpose (`Retry`, `Snooze`, `Cancel`) are not errors: see
`model.outcome`.
"""

from __future__ import annotations


class HoldfastError(Exception):
    """The base of all errors that Holdfast raises."""


class ConfigError(HoldfastError):
    """A setting, a name, a URL or a call is invalid."""


class Unsupported(HoldfastError):  # noqa: N818 - reads as the sentence it states
    """The store does not support the operation; the message says why."""


class NotFound(HoldfastError):  # noqa: N818
    """The store has no object of this name or id."""


class CategoryNotFound(NotFound):
    """No event was ever appended to this category, and it was never created explicitly."""


class ConsumerNotFound(NotFound):
    """No consumer of this name has ever subscribed."""


class JobNotFound(NotFound):
    """No job has this id: it never existed, or retention has pruned it."""


class ScheduleNotFound(NotFound):
    """The store has no schedule of this name."""


class TaskNotFound(NotFound):
    """No task of this name is registered on the app."""


class PayloadError(HoldfastError):
    """Arguments, headers or a result cannot be encoded, are too large, or cannot be decoded."""


class ArgumentsError(PayloadError):
    """The arguments do not match the signature of the task."""


class JobFailed(HoldfastError):  # noqa: N818
    """The job whose result was awaited has failed; the error of its last attempt."""

    def __init__(self, job_id: str, task: str, *, attempts: int, error_class: str, error_message: str) -> None:
        error = f" with {error_class}: {error_message}" if error_class else ""
        super().__init__(
            f"job {job_id} ({task}) failed at attempt {attempts}{error}; for all attempts and their tracebacks: "
            f"holdfast job show {job_id}"
        )
        self.job_id = job_id
        self.task = task
        self.attempts = attempts
        self.error_class = error_class
        self.error_message = error_message


class JobCancelled(HoldfastError):  # noqa: N818
    """The job whose result was awaited was cancelled."""

    def __init__(self, job_id: str, task: str, *, reason: str) -> None:
        super().__init__(f"job {job_id} ({task}) was cancelled: {reason or 'no reason was given'}")
        self.job_id = job_id
        self.task = task
        self.reason = reason


def shown_unique_key(unique_key: str) -> str:
    """Return a unique key as messages and lists show it.

    One that was made of arguments is a JSON object or array, or a hash; arguments are not shown there.
    """
    return "(arguments)" if unique_key.startswith(("{", "[", "args-")) else unique_key


class UniqueConflict(HoldfastError):  # noqa: N818
    """Another job, `job_id`, holds the unique key: nothing was enqueued, and no job was retried."""

    def __init__(self, job_id: str, task: str, unique_key: str, *, retried: str | None = None) -> None:
        unique_key = shown_unique_key(unique_key)  # errors are logged
        holds = f"job {job_id} ({task}) holds the unique key {unique_key!r}"
        if retried is None:
            remedy = (
                'nothing was enqueued; wait for it or cancel it, or enqueue with on_conflict="keep" to get that job'
            )
        else:
            remedy = f"job {retried} was not retried; wait until that job has ended, or cancel it, then retry"
        super().__init__(f"{holds}: {remedy}. To look at it: holdfast job show {job_id}")
        self.job_id = job_id
        self.task = task
        self.unique_key = unique_key


class LeaseLost(HoldfastError):  # noqa: N818
    """The lease with this fence is no longer valid; the write changed nothing."""


class VersionConflict(HoldfastError):  # noqa: N818
    """A stream was not at the version that an append expected; nothing was written."""

    def __init__(self, category: str, stream: str, *, expected: int, actual: int) -> None:
        super().__init__(
            f"stream {category}/{stream} is at version {actual}, not {expected}: another append came first; "
            "read the stream again, repeat the decision, and append with the new version"
        )
        self.category = category
        self.stream = stream
        self.expected = expected
        self.actual = actual


class TransactionExpired(HoldfastError):  # noqa: N818
    """A transaction was open longer than its limit and was rolled back."""


class StoreError(HoldfastError):
    """The store failed."""


class StoreUnavailable(StoreError):  # noqa: N818
    """The store cannot be reached or is overloaded; nothing was written."""


class TransactionConflict(StoreUnavailable):
    """The store rolled a transaction back in favour of another one; nothing was written, and a repeat may succeed.

    A handler lets it end the attempt: the worker repeats the attempt, which does not count.
    """


class EventsGone(StoreError):  # noqa: N818
    """Events that a consumer had not read were deleted by the system that keeps them; it does not skip them."""


class OutcomeUnknown(StoreError):  # noqa: N818
    """The store failed while committing: the write may or may not have happened.

    Writes to a store are safe to repeat with the same ids and fences. `job_ids` lists the jobs that an enqueue or
    a copy would have created, in the order of the calls; it is empty for other operations. `is_repeatable` is False for
    an append to Kafka, which does not recognise ids: a repeat may write the events twice.
    """

    def __init__(self, *args: object, job_ids: tuple[str, ...] = (), is_repeatable: bool = True) -> None:
        super().__init__(*args)
        self.job_ids = job_ids
        self.is_repeatable = is_repeatable


class PrivilegeMissing(StoreError):  # noqa: N818
    """The role of the connection lacks a privilege on the tables; the message names the GRANT statements."""


class SchemaMismatch(StoreError):  # noqa: N818
    """The tables in the store do not match this version of Holdfast."""
