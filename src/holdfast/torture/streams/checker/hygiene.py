"""Nothing is left over after all nodes have exited (I21)."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.torture.checker.exits import unexpected
from holdfast.torture.checker.verdict import Violation
from holdfast.torture.streams.checker.invariant import StreamInvariant


class StreamHygiene(StreamInvariant):
    """I21 for streams."""

    code = "I21"
    name = "hygiene"
    forbids = (
        "a share, transaction, connection or process that outlives the run, a damaged store, a run without an end, a "
        "process that crashes or ends of an error that it did not expect"
    )

    def check(self) -> Iterator[Violation]:
        """Check the exits of processes, and the leftovers in the final dump."""
        self.checked += len(self.facts.run.exits)
        for exited, what in unexpected(self.facts.run.exits):
            yield self.broken(what, at_us=exited.at_us)
        if not self.facts.run.dumped:
            yield self.broken("the run has no final dump: it did not finish")
        for dumped in self.facts.run.dumped:
            self.checked += 1
            for what, name in (
                ("owned shares", "leases"),
                ("transactions", "transactions"),
                ("connections", "connections"),
                ("processes", "processes"),
            ):
                count = getattr(dumped, name)
                if count:
                    yield self.broken(f"{count} {what} are left over after all nodes have exited")
            if dumped.integrity:
                yield self.broken(f"the store is damaged: {dumped.integrity}")
            if dumped.rows != len(self.facts.by_id):
                yield self.broken(
                    f"{dumped.rows} events were dumped, but only {len(self.facts.by_id)} ids are distinct"
                )
