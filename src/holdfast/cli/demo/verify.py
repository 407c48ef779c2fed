"""Count the results of a run from the effects and the ledger, independently of the workers' reports."""

from __future__ import annotations

from holdfast.cli.demo.plan import DemoRun
from holdfast.cli.demo.records import Records
from holdfast.cli.demo.target import StatementRunner
from holdfast.cli.demo.verdict import DemoTotals, Found
from holdfast.model.job import FINAL_STATES, JobState


async def count(records: Records, run: DemoRun) -> DemoTotals:
    """Return the counts of a run, and mark it as finished if no job is left."""
    await records.copy_ledger(run)
    tally = await _counted(records, run)
    if not run.is_finished and not tally.left and tally.produced == run.plan.jobs:
        await records.end_session(0, 0.0, finished=True)
    return tally


async def _counted(records: Records, run: DemoRun) -> DemoTotals:
    async with records.visit() as link:
        states = dict(await link.rows("count_states"))
        ((lost_attempts, most_lost),) = await link.rows("lost_attempts", run.plan.max_attempts)
        return DemoTotals(
            produced=await link.number("count_jobs"),
            effects=await link.number("count_effects"),
            completed=states.get(JobState.COMPLETED, 0),
            failed=states.get(JobState.FAILED, 0),
            cancelled=states.get(JobState.CANCELLED, 0),
            left=sum(number for state, number in states.items() if state not in FINAL_STATES),
            used_attempts=dict(await link.rows("histogram")),
            highest_attempt=await link.number("highest"),
            lost_attempts=lost_attempts,
            most_lost=most_lost,
            doubled=await _found(link, "doubled"),
            lost=await _found(link, "lost"),
            strays=await _found(link, "strays"),
            seconds=run.seconds,
            killed=run.killed,
        )


async def _found(link: StatementRunner, statement: str) -> Found:
    rows: list[tuple[str, int]] = await link.rows(statement)
    return Found(rows[0][1], [job_id for job_id, _ in rows]) if rows else Found()
