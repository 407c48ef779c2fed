"""Carries out a bulk operation until it has ended, with whoever else does.

`python -m tests.system.apps.operation_program <id> <seconds after which a chunk of a dead process is repeated>`
"""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import timedelta

from holdfast import App
from holdfast.app.operation import OperationState


async def main() -> None:
    operation_id, held = sys.argv[1], float(sys.argv[2])
    async with App(os.environ["HOLDFAST_URL"]) as app:
        app.operations.held = timedelta(seconds=held)
        while (await app.operations.get(operation_id)).state is OperationState.RUNNING:
            await app.operations.run_pending()
            await asyncio.sleep(0.05)  # until a chunk of a process that was killed may be repeated


if __name__ == "__main__":
    asyncio.run(main())
