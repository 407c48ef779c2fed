"""From a plan to a report, for streams."""

from __future__ import annotations

import asyncio
from pathlib import Path

from holdfast.torture.plan import RunPlan
from holdfast.torture.progress import RunPhase, RunProgress
from holdfast.torture.report import RunReport, report_of
from holdfast.torture.server import OwnServer
from holdfast.torture.streams.checker import check_streams, recoveries
from holdfast.torture.streams.conductor import StreamConductor
from holdfast.torture.streams.dump import dump_streams
from holdfast.torture.streams.target import StreamGround


async def torture_streams(
    plan: RunPlan, target: StreamGround, *, history: Path, progress: RunProgress, server: OwnServer | None = None
) -> RunReport:
    """Run, read the store, check the history, and report."""
    await asyncio.to_thread(target.wipe)
    conductor = StreamConductor(plan, target, history=history, progress=progress, server=server)
    try:
        await conductor.run()
        progress.phase = RunPhase.READING
        figures = await asyncio.to_thread(dump_streams, target, conductor.log, processes=conductor.processes_left)
    finally:
        conductor.log.close()
    progress.phase = RunPhase.CHECKING
    verdict = await asyncio.to_thread(check_streams, history)
    times = await asyncio.to_thread(recoveries, history)
    progress.phase = RunPhase.OVER
    return report_of(conductor, figures, verdict, times)
