"""Several stores, for more cores than one: the example of the guide, run."""

from __future__ import annotations

import re
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tests.servers.redis import own_store

GUIDE = Path(__file__).parents[2] / "docs/howto/redis.md"


async def test_each_customers_jobs_are_in_one_store_and_all_are_done():
    (shown,) = re.findall(r"^```py\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    with own_store("valkey") as one, own_store("valkey") as two:
        names: dict[str, Any] = {"__name__": "several"}
        exec(shown.replace("redis://one:6379/0", one).replace("redis://two:6379/0", two), names)  # noqa: S102 - the guide
        async with AsyncExitStack() as stack:
            for app in names["apps"]:
                await stack.enter_async_context(app)
                await stack.enter_async_context(app.working(concurrency=2))
            jobs = [await names["place"](f"customer-{number}", number) for number in range(12)]
            assert [await job.result(timeout=20) for job in jobs] == list(range(12))
            ids = [job.id for job in jobs]
            counts = [len(await (await app.opened()).insight.states(ids)) for app in names["apps"]]
            assert sum(counts) == 12
            assert all(counts)
