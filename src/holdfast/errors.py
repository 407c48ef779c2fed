"""Every error that Holdfast raises.

```text
HoldfastError
├── ConfigError              a setting, a name, a URL or a call that cannot work; the text names the remedy
├── Unsupported              this store cannot do that, and why
├── NotFound
│   ├── CategoryNotFound
│   ├── ConsumerNotFound
│   ├── JobNotFound
│   └── TaskNotFound
├── PayloadError             arguments, headers or a result that cannot be carried or read back
│   └── ArgumentsError       the call does not fit the task's signature
├── LeaseLost                the fence is stale; nothing was written
├── VersionConflict          a stream is not at the version that an append expected; nothing was written
├── TransactionExpired       a handler's transaction held the store too long and was rolled back
└── StoreError
    ├── StoreUnavailable     the store cannot be reached or is overloaded; nothing was written
    ├── OutcomeUnknown       the store may or may not have committed; repeat with the same ids
    └── SchemaMismatch       the tables are missing, older or newer than this version
```

How a handler ends an attempt on purpose (`Retry`, `Snooze`, `Cancel`) is not an error: see `model.outcome`.
"""

from __future__ import annotations


class HoldfastError(Exception):
    """The base of all errors of Holdfast."""


class ConfigError(HoldfastError):
    """A setting, a name, a URL or a call cannot work as given."""


class Unsupported(HoldfastError):  # noqa: N818 - reads as the sentence it states
    """The store cannot do what was asked; the text says why."""


class NotFound(HoldfastError):  # noqa: N818
    """The named thing does not exist in the store."""


class CategoryNotFound(NotFound):
    """No event was ever appended to this category, and nobody has made it."""


class ConsumerNotFound(NotFound):
    """No consumer of this name has ever subscribed."""


class JobNotFound(NotFound):
    """No job has this id: it never existed, or retention has pruned it."""


class TaskNotFound(NotFound):
    """No task of this name is registered on the app."""


class PayloadError(HoldfastError):
    """Arguments, headers or a result cannot be encoded, are too large, or cannot be decoded."""


class ArgumentsError(PayloadError):
    """The arguments do not fit the signature of the task."""


class LeaseLost(HoldfastError):  # noqa: N818
    """The job is no longer held under this fence; the write changed nothing."""


class VersionConflict(HoldfastError):  # noqa: N818
    """A stream was not at the version that an append expected; nothing was written."""

    def __init__(self, category: str, stream: str, *, expected: int, actual: int) -> None:
        super().__init__(
            f"stream {category}/{stream} is at version {actual}, not {expected}: somebody has appended meanwhile; "
            "read the stream again, decide again and append with the new version"
        )
        self.category = category
        self.stream = stream
        self.expected = expected
        self.actual = actual


class TransactionExpired(HoldfastError):  # noqa: N818
    """A transaction was held open past its limit and has been rolled back."""


class StoreError(HoldfastError):
    """The store failed."""


class StoreUnavailable(StoreError):  # noqa: N818
    """The store cannot be reached or is overloaded; what was asked has not been done."""


class OutcomeUnknown(StoreError):  # noqa: N818
    """The store failed while committing: the write may or may not have happened.

    Every write of Holdfast is safe to repeat with the same ids and fences. `job_ids` are those of the jobs that an
    enqueue or a copy was to make, in the order of the calls; empty if it was something else.
    """

    def __init__(self, *args: object, job_ids: tuple[str, ...] = ()) -> None:
        super().__init__(*args)
        self.job_ids = job_ids


class SchemaMismatch(StoreError):  # noqa: N818
    """The tables in the store do not fit this version of Holdfast."""
