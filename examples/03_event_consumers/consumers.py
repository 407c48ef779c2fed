"""Three consumers of two categories: python consumers.py node NAME | produce | verify | clean.

The events are in SQLite, or in Kafka if $HOLDFAST_EVENTS_URL names it; the consumers are the same.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sqlite3
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

from holdfast import App, Event, EventContext, Timing

FILE = os.environ.get("EVENTS_DB", "events.db")
EVENTS = int(os.environ.get("EVENTS", "3000"))
COMPANIES = 20
RECOVERY = float(os.environ.get("EVENTS_RECOVERY", "3"))  # seconds until others take over from a dead node

app = App(f"sqlite:///{FILE}?synchronous=normal")


async def note(consumer: str, events: list[Event], ctx: EventContext) -> None:
    """Write the effect and, with it, the position: both are there, or neither is. The table has no unique key."""
    node = os.environ.get("NODE", "?")
    rows = [(consumer, event.category, event.stream, event.payload["n"], node) for event in events]
    async with ctx.transaction() as connection:
        await connection.executemany("insert into effect values (?, ?, ?, ?, ?)", rows)


@app.consumer("billing", category="companies", batch=50)
async def billing(events: list[Event], ctx: EventContext) -> None:
    """Read one category."""
    await note("billing", events, ctx)


@app.consumer("shipping", category="orders", batch=50)
async def shipping(events: list[Event], ctx: EventContext) -> None:
    """Read the other one."""
    await note("shipping", events, ctx)


@app.consumer("audit", log=True, batch=50)
async def audit(events: list[Event], ctx: EventContext) -> None:
    """Read both, and whatever category comes later."""
    await note("audit", events, ctx)


def prepare() -> None:
    """Make the table of effects."""
    app.sync.opened()
    for name in ("companies", "orders"):
        app.sync.category(name, partitions=6)
    with closing(sqlite3.connect(FILE)) as connection:
        connection.execute("create table if not exists effect (consumer, category, stream, n, node)")
        connection.commit()


def node(name: str) -> int:
    """Take part until SIGTERM; the nodes share the partitions of every consumer among them."""
    logging.basicConfig(level=logging.WARNING, format=f"{name}: %(message)s")
    os.environ["NODE"] = name
    return app.run_worker(node_id=name, timing=Timing.for_recovery(RECOVERY))


async def produce() -> None:
    """Append events, a few at a time; each belongs to one company, whose events are numbered and stay in order."""
    made: Counter[tuple[str, str]] = Counter()
    async with app:
        while made.total() < EVENTS:
            for category in ("companies", "orders"):
                events = []
                for _ in range(10):
                    stream = f"company-{random.randrange(COMPANIES)}"
                    made[category, stream] += 1
                    events.append({"stream": stream, "name": "changed", "payload": {"n": made[category, stream]}})
                await app.append_many(category, events)
            await asyncio.sleep(0.02)
    print(f"appended {made.total()} events")


def appended() -> Counter[str]:
    """Count the events of each category, as they are read, wherever they are."""
    counts: Counter[str] = Counter()
    page = app.sync.read(log=True, limit=10_000)
    while page:
        counts.update(event.category for event in page)
        page = app.sync.read(log=True, limit=10_000, after=page.cursor)
    return counts


def verify() -> int:
    """Compare the effects with the events: every one once, in order per stream."""
    counts = appended()
    expected = {"billing": counts["companies"], "shipping": counts["orders"], "audit": counts.total()}
    bad = 0
    with closing(sqlite3.connect(FILE)) as connection:
        for consumer, wanted in expected.items():
            order: dict[tuple[str, str], int] = {}
            doubled = misplaced = 0
            for category, stream, number in connection.execute(
                "select category, stream, n from effect where consumer = ? order by rowid", (consumer,)
            ):
                last = order.get((category, stream), 0)
                doubled += number <= last
                misplaced += number > last + 1
                order[category, stream] = max(number, last)
            lost = wanted - sum(order.values())
            bad += doubled + misplaced + lost
            print(f"{consumer:<9} {wanted} events, doubled {doubled}, lost {lost}, out of order {misplaced}")
        nodes = connection.execute("select node, count(*) from effect group by node order by node").fetchall()
    print("handled by " + ", ".join(f"{name}: {count}" for name, count in nodes))
    print("every event took effect once, in order" if not bad else "NOT every event took effect once, in order")
    return 1 if bad else 0


def clean() -> None:
    """Delete the database."""
    for ending in ("", "-wal", "-shm"):
        Path(FILE + ending).unlink(missing_ok=True)


if __name__ == "__main__":
    steps = {"node": node, "produce": produce, "verify": verify, "clean": clean, "prepare": prepare}
    step, *names = sys.argv[1:] or ["verify"]
    ended = steps[step](*names)
    sys.exit(asyncio.run(ended) if asyncio.iscoroutine(ended) else ended)
