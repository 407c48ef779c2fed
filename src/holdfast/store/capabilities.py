"""What a store can and cannot do, as facts with reasons."""

from __future__ import annotations

import msgspec

from holdfast.errors import Unsupported

STREAMS = "keep streams"
"""What a store without streams refuses."""
QUEUE_EFFECTS = "queue effects"
"""What a store does that has no transactions, but `ctx.transaction()`."""
JOBS = "keep jobs"
"""What a store of streams alone refuses."""
PARK = "park events"
CHILD_PROCESSES = "run consumers in child processes"
_JOINS_INSTEAD = "run statements on the connection that ctx.transaction() yields: they commit with the completion"


class Capabilities(msgspec.Struct, frozen=True):
    """The facts of one opened store.

    `notifies`: it notifies other processes of new jobs and events, so that they need not wait for their next poll.
    `joins_transactions`: effect and completion can commit together, and an enqueue can join the caller's transaction.
    `queues_effects`: in its place, commands that a handler queues are applied together with the completion, all or
    nothing. What the handler reads is compared at the end, and nothing is locked meanwhile.
    `repeat_shows_outcome`: repeating a write of unknown outcome under the same ids shows whether the first one was
    written, because only its reply was lost. Otherwise a sync to disk may have failed: then a repeat may see data that
    does not survive a crash of the machine.
    `one_writer`: it has one write lock, so that a handler's transaction blocks every other write, heartbeats included.
    `batches_at_once`: a fetch for a handler of batches asks for so many, and waits for the first alone. More than one
    where events are in memory before the fetch, which then mainly asks for the state of the share.
    `refusals`: for each unsupported operation, the reason.
    """

    store: str
    version: str
    durability: str
    notifies: bool
    joins_transactions: bool
    shared: bool
    queues_effects: bool = False
    repeat_shows_outcome: bool = False
    one_writer: bool = False
    batches_at_once: int = 1
    refusals: dict[str, str] = {}

    @property
    def commits_effects(self) -> bool:
        """Whether effect and completion take effect together: `ctx.transaction()` works."""
        return self.joins_transactions or self.queues_effects

    @property
    def has_streams(self) -> bool:
        """Whether it keeps events, consumers and nodes."""
        return STREAMS not in self.refusals

    @property
    def has_jobs(self) -> bool:
        """Whether it keeps jobs."""
        return JOBS not in self.refusals

    def require(self, what: str) -> None:
        """Raise `Unsupported`, with the reason, if the store does not support `what`."""
        reason = self.refusals.get(what)
        if what == QUEUE_EFFECTS and self.joins_transactions:
            reason = _JOINS_INSTEAD
        if reason is not None:
            message = f"{self.store} cannot {what}: {reason}"
            raise Unsupported(message)
