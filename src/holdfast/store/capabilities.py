"""What a store can and cannot do, as facts with reasons."""

from __future__ import annotations

import msgspec

from holdfast.errors import Unsupported

STREAMS = "keep streams"
"""What a store without streams refuses."""


class Capabilities(msgspec.Struct, frozen=True):
    """The facts of one opened store.

    `notifies`: it notifies other processes of new jobs and events, so that they need not wait for their next poll.
    `joins_transactions`: effect and completion can commit together, and an enqueue can join the caller's transaction.
    `repeat_shows_outcome`: repeating a write of unknown outcome under the same ids shows whether the first one was
    written, because only its reply was lost. Otherwise a sync to disk may have failed: then a repeat may see data that
    does not survive a crash of the machine.
    `one_writer`: it has one write lock, so that a handler's transaction blocks every other write, heartbeats included.
    `limits_keys`: it has limits per key.
    `refusals`: for each unsupported operation, the reason.
    """

    store: str
    version: str
    durability: str
    notifies: bool
    joins_transactions: bool
    shared: bool
    repeat_shows_outcome: bool = False
    one_writer: bool = False
    limits_keys: bool = True
    refusals: dict[str, str] = {}

    @property
    def has_streams(self) -> bool:
        """Whether it keeps events, consumers and nodes."""
        return STREAMS not in self.refusals

    def require(self, what: str) -> None:
        """Raise `Unsupported`, with the reason, if the store does not support `what`."""
        reason = self.refusals.get(what)
        if reason is not None:
            message = f"{self.store} cannot {what}: {reason}"
            raise Unsupported(message)
