"""Count what a run has come to, from the effects and the ledger; nothing that the consumers told is believed."""

from __future__ import annotations

from typing import Any

from holdfast.cli.demo.plan import Run
from holdfast.cli.demo.records import STATEMENTS, Records
from holdfast.cli.demo.verdict import Found, Tally
from holdfast.model.job import FINAL_STATES, JobState


async def count(records: Records, run: Run) -> Tally:
    """Return the tally of a run, and note it as finished if nothing is left of it."""
    await records.copy_ledger(run)
    tally = await _counted(records, run)
    if not run.is_finished and not tally.left and tally.produced == run.plan.jobs:
        await records.end_session(0, 0.0, finished=True)
    return tally


async def _counted(records: Records, run: Run) -> Tally:
    async with records.visit() as connection:
        states = dict((await connection.execute(STATEMENTS["count_states"])).fetchall())
        limit = (run.plan.max_attempts,)
        lost_attempts, most_lost = (await connection.execute(STATEMENTS["lost_attempts"], limit)).fetchone()
        return Tally(
            produced=await _number(connection, "count_works"),
            effects=await _number(connection, "count_effects"),
            completed=states.get(JobState.COMPLETED, 0),
            failed=states.get(JobState.FAILED, 0),
            cancelled=states.get(JobState.CANCELLED, 0),
            left=sum(number for state, number in states.items() if state not in FINAL_STATES),
            tries=dict((await connection.execute(STATEMENTS["histogram"])).fetchall()),
            highest_attempt=await _number(connection, "highest"),
            lost_attempts=lost_attempts,
            most_lost=most_lost,
            doubled=await _found(connection, "doubled"),
            lost=await _found(connection, "lost"),
            strays=await _found(connection, "strays"),
            seconds=run.seconds,
            killed=run.killed,
        )


async def _number(connection: Any, statement: str) -> int:
    number: int | None = (await connection.execute(STATEMENTS[statement])).fetchone()[0]
    return number or 0


async def _found(connection: Any, statement: str) -> Found:
    rows: list[tuple[str, int]] = (await connection.execute(STATEMENTS[statement])).fetchall()
    return Found(rows[0][1], [work_id for work_id, _ in rows]) if rows else Found()
