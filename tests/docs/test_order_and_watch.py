"""The pages about order keys and about monitoring: their code is run, and shows what they say."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.test_documentation import ROOT, blocks, commands, run, shell

ORDERS = """
import asyncio
from datetime import timedelta
from holdfast import App, Context

app = App("sqlite:///orders.db")

@app.task(queue="orders")
async def charge(order_id: int, ctx: Context) -> None:
    await asyncio.sleep(0)  # so that others could overtake it
    print("charge", order_id, "of", ctx.job.order_key)

@app.task(queue="orders")
async def refund(order_id: int) -> None:
    print("refund", order_id)
"""


def program(folder: Path, body: str) -> list[str]:
    """Run the body in an event loop, with the app and its tasks, and return the lines of its output."""
    indented = "".join(f"        {line}\n" for line in body.splitlines())
    main = f"{ORDERS}\nasync def main() -> None:\n    async with app:\n{indented}\nasyncio.run(main())\n"
    (folder / "orders.py").write_text(main, encoding="utf-8")
    return run(folder, "orders.py").splitlines()


def test_jobs_with_one_key_run_in_order_as_shown(tmp_path: Path):
    (shown,) = blocks("docs/howto/order-by-key.md")
    after = """
print(await app.queues.depth("orders"), len((await app.jobs.list("blocked")).jobs))
await app.drain("orders")
"""

    counts, *ran = program(tmp_path, shown + after)

    assert counts == "2 2"
    ordered = [line for line in ran if line != "charge 9 of customer-4"]
    assert ordered == ["charge 7 of customer-3", "charge 8 of customer-3", "refund 7"]
    assert len(ran) == len(ordered) + 1


def test_a_paused_queue_is_explained_as_shown(tmp_path: Path):
    (explained,) = commands("docs/howto/watch.md")
    waits = 'job = await charge.enqueue(order_id=7)\nawait app.queues.pause("orders")\nprint(job.id)'
    (job_id,) = program(tmp_path, waits)

    shown = shell(tmp_path, f"HOLDFAST_URL=sqlite:///orders.db holdfast job explain {job_id}")

    assert re.sub(r"(?<=^Job )\S+", "3.9dbf", shown) == explained.output


def test_every_figure_can_be_read_as_shown(tmp_path: Path):
    table = (ROOT / "docs/howto/watch.md").read_text(encoding="utf-8").partition("## Figures")[2]
    reads = re.findall(r"`(await app\.[^`]+)`", table)
    body = "await charge.enqueue(order_id=7)\n" + "".join(f"print(repr({read})[:40])\n" for read in reads)

    assert len(program(tmp_path, body)) == len(reads) > 0


def test_logs_appear_once_they_are_configured_as_shown(tmp_path: Path):
    (configured,) = blocks("docs/howto/watch.md")
    work = "app.run_worker(until_empty=True)\n"
    for name, text in (("silent", ORDERS + work), ("loud", ORDERS + configured + work)):
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")

    assert shell(tmp_path, "python silent.py 2>&1") == ""
    assert "INFO:holdfast.worker:" in shell(tmp_path, "python loud.py 2>&1")
