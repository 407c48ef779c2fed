"""The examples of the guides are run, and do what they say."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.docs.test_documentation import ROOT, blocks, run


def fenced(page: str, kind: str) -> list[str]:
    """Return the blocks of a page that begin with these words."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_orders_are_placed_and_paid_in_transactions_of_sqlite_as_shown(tmp_path: Path):
    place, refund = fenced("docs/howto/transactions.md", "py")
    after = """
app.sync.opened()
place(7)
job = refund.sync.enqueue(order_id=8)
print(app.sync.drain("default"), job.sync.result())
"""
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as connection:
        connection.execute("create table orders (order_id)")
        connection.execute("create table payment (order_id, job_id)")
        (tmp_path / "shop.py").write_text(place + refund + after, encoding="utf-8")

        assert run(tmp_path, "shop.py") == "2 completed {'refunded': 8}\n"
        assert connection.execute("select order_id from orders").fetchall() == [(7,)]
        assert sorted(connection.execute("select order_id from payment")) == [(7,), (8,)]


def test_a_worker_of_ones_own_reads_the_arguments_and_calls_the_handler(tmp_path: Path):
    (shown,) = [block for block in blocks("docs/howto/own-worker.md") if "class Recorder" in block]
    recorder = shown.partition("\nworker = ")[0]
    before = """
from holdfast import App

app = App("sqlite://")

@app.task(queue="orders")
async def charge(order_id: int, ctx: "Context") -> str:
    lease = (await app.job(ctx.job.id).details()).lease
    return f"{order_id}: {lease.note}"
"""
    after = """
job = charge.sync.enqueue(order_id=7)
app.sync.drain("orders", worker_class=Recorder)
print(job.sync.result())
"""
    (tmp_path / "own.py").write_text(recorder.replace("\nclass ", f"{before}\nclass ") + after, encoding="utf-8")

    assert run(tmp_path, "own.py") == "7: attempt 1 at order 7\n"


def test_the_unit_of_systemd_has_comments_on_lines_of_their_own():
    (unit,) = fenced("docs/howto/stop-and-deploy.md", "ini")

    for line in filter(None, unit.splitlines()):
        assert re.fullmatch(r"#.*|\[\w+\]|\w+=[^#]+", line), line
