"""What the tests of consumers share: nodes in this process, on a file."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3

from holdfast import App, Timing

QUICK = Timing().scaled(0.1)  # a dead node is noticed after a second
SOON = 20.0


async def eventually(look, *, within: float = SOON):
    async with asyncio.timeout(within):
        while not (found := await look()):  # noqa: ASYNC110 - what another node does has no event here
            await asyncio.sleep(0.01)
        return found


@contextlib.asynccontextmanager
async def running(*nodes):
    tasks = [asyncio.create_task(node.run()) for node in nodes]
    try:
        yield
    finally:
        for node in nodes:
            node.stop()
        await asyncio.gather(*tasks)


def drained(app: App, consumer: str = "billing"):
    async def look():
        views = [view for view in await app.consumers.list() if view.name == consumer]
        return views and views[0].shares and views[0].lag == 0

    return look


async def append(app: App, stream: str, count: int, *, category: str = "orders") -> None:
    await app.append_many(
        category, [{"stream": stream, "name": "placed", "payload": {"n": number}} for number in range(count)]
    )


async def make_effects(app: App) -> None:
    await query(app, "create table effect (event_id text not null, fence integer not null)")


async def effects(app: App) -> int:
    return int((await query(app, "select count(*) from effect"))[0][0])


async def query(app: App, sql: str):
    def run():
        with contextlib.closing(
            sqlite3.connect(app.backend.url.removeprefix("sqlite:///").partition("?")[0])
        ) as connection:
            rows = connection.execute(sql).fetchall()
            connection.commit()
            return rows

    return await asyncio.to_thread(run)
