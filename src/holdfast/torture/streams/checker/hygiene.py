"""Nothing is left over after all nodes have exited (I21)."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.torture.checker.exits import left_over
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
        run = self.facts.run
        self.checked += len(run.exits) + len(run.dumped)
        for what, at_us in left_over(run.exits, run.dumped, owned="owned shares", when="after all nodes have exited"):
            yield self.broken(what, at_us=at_us)
        for dumped in run.dumped:
            if dumped.rows != len(self.facts.by_id):
                yield self.broken(
                    f"{dumped.rows} events were dumped, but only {len(self.facts.by_id)} ids are distinct"
                )
