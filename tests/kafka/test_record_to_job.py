"""The example of the page: each record becomes one job, though the consumer fails between enqueue and commit."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

from holdfast import App

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "event-to-job.md"
WITHIN = 30.0


async def test_each_record_becomes_one_job_as_shown(events: str, tmp_path: Path):
    (shown,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    url = f"sqlite:///{tmp_path / 'shop.db'}?synchronous=normal"
    code = shown.replace("postgresql://localhost/shop", url).replace("kafka://localhost:9092/shop.", events)
    assert code.count("await send_invoice.enqueue(") == 1
    failing = "\n        fail_once(event)  # after the enqueue, before the commit\n"
    made: dict[str, Any] = {"fail_once": FailOnce(), "__name__": "invoicing"}
    exec(compile(code.rstrip() + failing, str(PAGE), "exec"), made)  # noqa: S102 - our own page
    app: App = made["app"]
    try:
        await app.category("orders", partitions=2)
        for number in range(6):
            await app.append("orders", stream=f"order-{number}", name="placed", payload={"amount": number})
        node = app.node()
        running = asyncio.create_task(node.run())
        async with asyncio.timeout(WITHIN):
            while node.status().handled < 6:  # noqa: ASYNC110 - what the node has done
                await asyncio.sleep(0.05)
        node.stop()
        await running

        jobs = await app.jobs.list("ready", queue="invoices")
        assert len(jobs.jobs) == 6
        assert made["fail_once"].failed == 6
    finally:
        await app.close()


class FailOnce:
    """Raises at the first sight of each event."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self.failed = 0

    def __call__(self, event: Any) -> None:
        if event.id not in self._seen:
            self._seen.add(event.id)
            self.failed += 1
            raise RuntimeError("as if the process had died here")
