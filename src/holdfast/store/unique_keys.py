"""What a store implements for unique keys. The rule is in `verbs/unique.py`, the decision in `model/unique.py`.

A *unique key* is a row (task, key) that names the job that took it last: it is what concurrent enqueues wait for. The
row of a job records the key that it was enqueued with, and its scope (`UniqueJob`): for manual retries and for lists.
The store writes that when it inserts the job.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from holdfast.model.conditions import UniqueScope
from holdfast.model.unique import Holder, Stage
from holdfast.store.steps import Steps

if TYPE_CHECKING:
    from holdfast.store.job_rows import JobRow

KeyName = tuple[str, str]
"""The task, and the key within it."""


class UniqueClaim(NamedTuple):
    """A job with a unique key. `period`, in microseconds, is given for that scope only."""

    task: str
    unique_key: str
    id: str
    unique_scope: UniqueScope
    period: int | None

    @property
    def name(self) -> KeyName:
        """The name of the key."""
        return self.task, self.unique_key


class UniqueKey(NamedTuple):
    """A unique key and the job that took it last, with that job's stage when the key was read."""

    task: str
    unique_key: str
    holder: Holder

    @property
    def name(self) -> KeyName:
        """The name of the key."""
        return self.task, self.unique_key


class TakenKeys(NamedTuple):
    """The answer to `take_keys`. `known` are the ids, among those of the claims, that jobs have already.

    `all_given`: no key existed, each claim was given one, and nothing else is answered. It is the usual case.
    """

    now: int
    keys: dict[KeyName, UniqueKey]
    known: set[str]
    all_given: bool = False


class UniqueJob(NamedTuple):
    """The unique key of a job, as it was enqueued (`unique_among`)."""

    id: str
    task: str
    unique_key: str
    unique_scope: str


class Replacement(NamedTuple):
    """New arguments, and a new time, for a job that is waiting: from the row that was read to the row to write."""

    old: JobRow
    new: JobRow
    payload: str


class UniqueRows(Protocol):
    """The part of `JobRows` for unique keys. Each method is a generator of requests to the store."""

    def take_keys(self, claims: Sequence[UniqueClaim], *, again: bool = False) -> Steps[TakenKeys]:
        """Lock the keys of these claims until the end of the transaction, and return them with their holders.

        1. Waits for transactions that have locked one of the keys. Keys are locked in the order of their names.
        2. A key that does not exist is given to the first claim for it, unless a job with the claim's id exists; with
           `again`, also then.
        3. The holders' stages are read after the keys are locked: a job of a transaction that was waited for is seen.
        """
        ...

    def hold_keys(self, keys: Sequence[UniqueKey]) -> Steps[None]:
        """Write the holders of locked keys."""
        ...

    def drop_keys(self, keys: Sequence[UniqueKey]) -> Steps[None]:
        """Delete locked keys."""
        ...

    def replace(self, now: int, replacements: Sequence[Replacement]) -> Steps[list[Replacement]]:
        """Write each replacement whose row is unchanged since it was read; return the refused ones.

        A blocked job keeps its place in its order key. Waiting workers are notified of jobs that became ready.
        """
        ...

    def prune_keys(self, limit: int) -> Steps[None]:
        """Delete at most `limit` keys whose period has ended."""
        ...


def stage_of(text: str | None) -> Stage | None:
    """Return the stage that a statement has read."""
    return None if text is None else Stage(text)
