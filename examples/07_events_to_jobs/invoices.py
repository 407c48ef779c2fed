"""Events in Kafka become jobs in SQLite, each once, although the consumer is killed: python invoices.py [work].

Without $HOLDFAST_EVENTS_URL it starts a throw-away broker.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from holdfast import App, Context, Event, EventContext, Timing

FILE = "invoices.db"
EVENTS = int(os.environ.get("EVENTS", "5000"))
LIMIT = 300.0  # seconds
WITH_A_BROKER = [sys.executable, "-m", "holdfast.testing.kafka_server"]

app = App(f"sqlite:///{FILE}?synchronous=normal")


@app.task(queue="invoices")
async def send_invoice(ctx: Context, order: str, number: int) -> None:
    """Write the invoice, and with it the end of the job. The table has no unique key: a double would be in it."""
    async with ctx.transaction() as connection:
        await connection.execute("insert into invoice values (?, ?)", (f"{order} {number}", ctx.job.id))


@app.consumer("invoicing", category="orders", batch=50, poll_interval=0.2)
async def invoicing(events: list[Event], ctx: EventContext) -> None:
    """Enqueue a job for each event: the jobs and the position of the consumer commit together."""
    async with ctx.transaction():
        await send_invoice.enqueue_many([{"order": event.stream, "number": event.payload} for event in events])


def work(name: str) -> int:
    """Run the consumer and its jobs until SIGTERM."""
    logging.basicConfig(level=logging.WARNING, format=f"{name}: %(message)s")
    return app.run_worker(node_id=name, queues=["invoices"], lease=3, timing=Timing.for_recovery(3))


def invoices() -> list[tuple[str, str]]:
    with closing(sqlite3.connect(FILE, timeout=30)) as connection:
        return connection.execute("select event, job_id from invoice").fetchall()


def wait_until(look: Callable[[], bool], deadline: float) -> None:
    while not look():
        if time.monotonic() > deadline:
            sys.exit("this takes too long: something is wrong")
        time.sleep(0.1)


def prepare() -> None:
    for ending in ("", "-wal", "-shm"):
        Path(FILE + ending).unlink(missing_ok=True)
    app.sync.category("orders", partitions=4)
    with closing(sqlite3.connect(FILE)) as connection:
        connection.execute("create table invoice (event, job_id)")
    made = [{"stream": f"order-{n % 100}", "name": "placed", "payload": n} for n in range(EVENTS)]
    for begin in range(0, EVENTS, 500):
        app.sync.append_many("orders", made[begin : begin + 500])


def start(name: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, __file__, "work", name])  # noqa: S603 - our own program


def is_done() -> bool:
    """Return whether every event was handled, and has its invoice. A job that is retried may be in any state."""
    (view,) = app.consumers.sync.list()
    return view.lag == 0 and len(invoices()) >= EVENTS


def play() -> int:
    """Kill the consumer in the midst of its work, let another one take over, and count."""
    prepare()
    print(f"{EVENTS} events are in Kafka")
    deadline = time.monotonic() + LIMIT
    worker = start("anna")
    try:
        wait_until(lambda: len(invoices()) > EVENTS // 10, deadline)
        worker.kill()
        worker.wait()
        print(f"$ kill -9 anna  # after {len(invoices())} invoices")
        worker = start("ben")
        wait_until(is_done, deadline)
    finally:
        worker.terminate()
        worker.wait()
    return verify()


def verify() -> int:
    """Compare the jobs with the events."""
    found = invoices()
    app.sync.close()
    jobs, orders = len({job for _, job in found}), len({event for event, _ in found})
    doubled, lost = len(found) - orders, EVENTS - orders
    print(f"{EVENTS} events, {jobs} jobs, doubled {doubled}, lost {lost}")
    print("every event became one job" if not doubled and not lost else "NOT every event became one job")
    return 1 if doubled or lost else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        sys.exit(work(sys.argv[2]))
    if "HOLDFAST_EVENTS_URL" not in os.environ:  # the same again, with a broker
        os.execv(sys.executable, [*WITH_A_BROKER, sys.executable, __file__])  # noqa: S606 - our own program
    sys.exit(play())
