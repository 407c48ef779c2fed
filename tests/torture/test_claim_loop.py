"""The direct claim loop finishes every job, through async and through blocking calls, and leaves no lease behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter

import pytest

from holdfast import App
from holdfast.torture.names import QUEUE
from holdfast.torture.target import target_of
from holdfast.torture.work.app import URL
from holdfast.torture.work.plain import plain
from holdfast.torture.work.transactions import transfer

PROGRAM = """
import os, sys
from holdfast.torture.programs.claim_choices import ClaimChoices
from holdfast.torture.programs.claim_loop import ClaimLoop
from holdfast.torture.programs.settings import WorkerProgramSettings

settings = WorkerProgramSettings(name="w1", parent=os.getppid(), lease=1.0, queues=())
choices = ClaimChoices(settings)
choices.is_blocking = sys.argv[1] == "blocking"
ClaimLoop(settings, choices).run()
"""
JOBS = 40
OPEN = ("ready", "running")


async def _registered() -> None: ...


@pytest.mark.parametrize("calls", ["async", "blocking"])
async def test_every_job_ends_once_and_no_lease_is_left(tmp_path, calls):
    url = f"sqlite:///{tmp_path / 'store.db'}"
    target = target_of(url)
    target.create()
    async with App(target.url) as app:
        target.prepare()
        for task in (transfer, plain):
            await app.task(name=task.name, queue=QUEUE)(_registered).enqueue_many([()] * (JOBS // 2))
        environment = {**os.environ, URL: target.url}
        program = await asyncio.create_subprocess_exec(sys.executable, "-c", PROGRAM, calls, env=environment)
        try:
            async with asyncio.timeout(50):
                while any(target.jobs.counts().get(state, 0) for state in OPEN):  # noqa: ASYNC110 - no event for "drained"
                    await asyncio.sleep(0.1)
        finally:
            program.send_signal(signal.SIGTERM)
            code = await asyncio.wait_for(program.wait(), 20)
        assert code == 0
        assert await app.leases() == []

    rows = list(target.jobs.rows())
    assert len(rows) == JOBS
    assert all(row.attempt > 0 for row in rows)
    completed = {row.job for row in rows if row.task == transfer.name and row.state == "completed"}
    assert completed
    assert Counter(effect.job for effect in target.jobs.effects()) == dict.fromkeys(completed, 1)
