"""The page for users of Celery: its code runs, and what it says of retries and ids holds."""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path

from tests.docs.test_documentation import ROOT, blocks, run

PAGE = "docs/howto/from-celery.md"


def test_the_code_for_celery_can_be_read_by_python():
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    found = re.findall(r"^ *```python celery\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)

    assert len(found) == 2
    for block in found:
        ast.parse(textwrap.dedent(block))


def test_the_task_runs_and_is_forwarded_once_under_the_id_of_a_message(tmp_path: Path):
    (shop,) = blocks(PAGE)
    after = """
import asyncio
from datetime import datetime, timedelta, timezone

asyncio.run(place())
message = "0b4cbf9c-6e1f-4c6b-9d2c-5f0c9a3e7a11"                # Celery's ids are random UUIDs
jobs = [charge.options(job_id=message).sync.enqueue(order_id=8) for _ in range(2)]
later = charge.options(run_at=datetime.now(timezone.utc) + timedelta(hours=1)).sync.enqueue(order_id=9)
print([job.created for job in jobs], app.sync.drain("orders"), jobs[0].sync.result(), later.sync.state())
"""
    (tmp_path / "shop.py").write_text(shop + after, encoding="utf-8")

    assert run(tmp_path, "shop.py") == "[True, False] 2 completed receipt 8, attempt 1 scheduled\n"


def test_only_the_named_exception_is_retried_and_max_attempts_counts_the_first_run(tmp_path: Path):
    (shop,) = blocks(PAGE)
    program = (
        shop.replace("    await ctx.progress(50)\n", "    raise OSError('away') if order_id else KeyError(order_id)\n")
        .replace("Exponential()", "0")
        .replace("shop.db", "retry.db")
    )
    after = """
jobs = [charge.sync.enqueue(order_id=number) for number in (0, 1)]
while any(job.sync.state() != "failed" for job in jobs):
    app.sync.drain("orders")
print([len(job.sync.details().attempts) for job in jobs])
"""
    (tmp_path / "retry.py").write_text(program + after, encoding="utf-8")

    assert run(tmp_path, "retry.py") == "[1, 4]\n"
