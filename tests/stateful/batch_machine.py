"""The rules with one more: jobs that end in a transaction over many leases, as batches of a task do."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from tests.stateful.drawn import TASKS, WORKERS, new_jobs, outcomes
from tests.stateful.machine import Handle, StoreMachine

from holdfast.errors import LeaseLost
from holdfast.model.outcome import Completed, Outcome
from holdfast.store.values import Finish, Verdict
from holdfast.testing.conformance.transactions import HandlerError

_LIMIT = timedelta(seconds=20)
_ALL = 1_000
_batches = st.lists(new_jobs, min_size=1, max_size=4)


class BatchMachine(StoreMachine):
    """The machine of jobs, for stores with transactions; for others it is that of jobs alone."""

    @precondition(lambda self: self.store.capabilities.joins_transactions)
    @rule(
        batch=st.lists(new_jobs, min_size=1, max_size=4), data=st.data(), fails=st.booleans(), completes=st.booleans()
    )
    def end_batch(self, batch: list[dict[str, Any]], data: st.DataObject, fails: bool, completes: bool) -> None:
        """Lock some leases, and end the jobs of those that are held: all of them, or none if the handler fails.

        Some jobs are claimed before, and leases of earlier claims take part, live and stale ones.
        """
        self.enqueue(batch, data)
        before = len(self.handles)
        self.claim(WORKERS[0], 4, None, tuple(TASKS), timedelta(seconds=30), isolates=True, slots=None)
        handles = self.handles[before:]
        if not handles or data.draw(st.booleans(), label="others"):
            handles = list(dict.fromkeys([*handles, *(self.some_handles(data) if self.handles else ())]))
        if not handles:
            return
        held = [handle for handle in handles if self.model.of_lease(handle.model)]
        if not held:
            with pytest.raises(LeaseLost):
                self.run(self._end(handles, [], fails=fails))
            return
        drawn = [(handle, Completed() if completes else data.draw(outcomes, label="outcome")) for handle in held]
        try:
            verdicts, concerns_children = self.run(self._end(handles, drawn, fails=fails))
        except HandlerError:
            assert fails
            return
        assert verdicts == self.model.finish([Finish(handle.model, outcome) for handle, outcome in drawn])
        if concerns_children:  # left to the next promotion
            self.run(self.store.jobs.promote(_ALL))
            self.model.promote(_ALL)

    async def _end(
        self, handles: list[Handle], drawn: list[tuple[Handle, Outcome]], *, fails: bool
    ) -> tuple[list[Verdict], bool]:
        leases = [handle.real for handle in handles]
        async with self.store.transactions.begin_many(leases, limit=_LIMIT) as transaction:
            assert transaction.held == {(handle.real.seq, handle.real.fence) for handle, _ in drawn}
            if fails and len(drawn) % 2:  # before the outcomes are written; else after them, where that does not commit
                raise HandlerError
            verdicts: list[Verdict] = await transaction.finish(
                [Finish(handle.real, outcome) for handle, outcome in drawn]
            )
            if fails and any(not isinstance(outcome, Completed) for _, outcome in drawn):
                raise HandlerError
        return verdicts, transaction.concerns_children
