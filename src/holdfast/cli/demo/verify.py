"""Count the results of a run from the effects and the ledger, independently of the workers' reports."""

from __future__ import annotations

from holdfast.cli.demo.plan import DemoRun
from holdfast.cli.demo.records import Records
from holdfast.cli.demo.verdict import DemoTotals


async def count(records: Records, run: DemoRun) -> DemoTotals:
    """Return the counts of a run, and mark it as finished if no job is left."""
    tally = await records.totals(run)
    if not run.is_finished and not tally.left and tally.produced == run.plan.jobs:
        await records.end_session(0, 0.0, finished=True)
    return tally
