"""Counts the outcomes of jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from holdfast.model.outcome import Cancelled, Completed, Failed, Lost, Retried, Snoozed
from holdfast.model.totals import Totals
from holdfast.store.values import Finish, Verdict


class TotalsCounter:
    """Running totals; `completed` and `lost` count the jobs whose outcome was not flushed."""

    __slots__ = ("_written", "abandoned", "completed", "lost", "released")

    def __init__(self) -> None:
        self._written: Counter[type] = Counter()
        self.completed = 0
        self.lost = 0
        self.released = 0
        self.abandoned = 0

    def count(self, finishes: Sequence[Finish], verdicts: Sequence[Verdict]) -> float | None:
        """Count finishes by outcome and verdict; return the shortest delay of those that will run again."""
        if list(verdicts).count(Verdict.DONE) != len(finishes):
            pairs = list(zip(finishes, verdicts, strict=True))
            finishes = [finish for finish, verdict in pairs if verdict is Verdict.DONE]
            self.lost += len(pairs) - len(finishes)
        kinds = Counter([type(finish.outcome) for finish in finishes])
        self._written.update(kinds)
        if Retried not in kinds and Snoozed not in kinds:
            return None
        outcomes = [finish.outcome for finish in finishes]
        return min(outcome.delay.total_seconds() for outcome in outcomes if isinstance(outcome, Retried | Snoozed))

    def totals(self) -> Totals:
        """Return the current totals."""
        written = self._written
        return Totals(
            completed=self.completed + written[Completed],
            retried=written[Retried],
            snoozed=written[Snoozed],
            failed=written[Failed],
            cancelled=written[Cancelled],
            lost=self.lost + written[Lost],
            released=self.released,
            abandoned=self.abandoned,
        )
