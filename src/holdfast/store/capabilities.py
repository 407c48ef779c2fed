"""What a store can and cannot do, as facts with reasons."""

from __future__ import annotations

import msgspec

from holdfast.errors import Unsupported


class Capabilities(msgspec.Struct, frozen=True):
    """The facts of one opened store.

    `notifies`: it tells other processes of new work without being polled by their claims.
    `joins_transactions`: effect and completion can commit together, and an enqueue can join the caller's transaction.
    `repeats_tell`: a write of unknown outcome, done again under the same ids, tells what became of the first: it is the
    reply that was lost, not the sync. Where a sync has failed, what a repeat still sees may not outlive the machine.
    `one_writer`: it has one write lock, so that a handler's transaction holds up every other write, reports too.
    `refusals`: for each thing it cannot do, the reason.
    """

    store: str
    version: str
    durability: str
    notifies: bool
    joins_transactions: bool
    shared: bool
    repeats_tell: bool = False
    one_writer: bool = False
    refusals: dict[str, str] = {}

    def require(self, what: str) -> None:
        """Raise `Unsupported` with the reason if the store has refused `what`."""
        reason = self.refusals.get(what)
        if reason is not None:
            message = f"{self.store} cannot {what}: {reason}"
            raise Unsupported(message)
