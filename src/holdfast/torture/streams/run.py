"""From a plan to a report, for streams."""

from __future__ import annotations

import asyncio
from pathlib import Path

from holdfast.testing.kafka_server import KafkaServer
from holdfast.torture.plan import RunPlan
from holdfast.torture.progress import RunProgress
from holdfast.torture.report import RunReport
from holdfast.torture.run import reported
from holdfast.torture.server import RunServer
from holdfast.torture.streams.checker import check_streams, recoveries
from holdfast.torture.streams.conductor import StreamConductor
from holdfast.torture.streams.dump import dump_streams
from holdfast.torture.target import Target


async def torture_streams(
    plan: RunPlan,
    target: Target,
    *,
    history: Path,
    progress: RunProgress,
    server: RunServer | None = None,
    broker: KafkaServer | None = None,
) -> RunReport:
    """Run, read the store, check the history, and report."""
    await asyncio.to_thread(target.create)
    conductor = StreamConductor(plan, target, history=history, progress=progress, server=server, broker=broker)
    return await reported(conductor, dump_streams, check_streams, recoveries)
