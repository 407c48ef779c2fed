"""Enqueues jobs with the same few unique keys, and says which job it got for each.

`python -m tests.system.apps.unique_program <calls> <seed>`
"""

from __future__ import annotations

import asyncio
import os
import random
import sys

from tests.system.apps import ledger_app

from holdfast import App, StoreUnavailable, TaskHandle

KEYS = 5


async def main() -> None:
    calls, chance = int(sys.argv[1]), random.Random(int(sys.argv[2]))
    app = App(os.environ["HOLDFAST_URL"])
    app.tasks.add(ledger_app.pay.task)
    pay = TaskHandle(app, ledger_app.pay.task, ledger_app.pay.task.handler)
    async with app:
        for _ in range(calls):
            keys = [f"key-{chance.randrange(KEYS)}" for _ in range(chance.randint(1, 3))]
            try:
                jobs = await asyncio.gather(
                    *(pay.options(unique_key=key, patience=10, max_attempts=100).enqueue() for key in keys)
                )
            except StoreUnavailable:
                continue
            for key, job in zip(keys, jobs, strict=True):
                print("got", key, job.id, job.created, flush=True)  # noqa: T201 - the test reads it
            await asyncio.sleep(chance.uniform(0.0, 0.02))


if __name__ == "__main__":
    asyncio.run(main())
