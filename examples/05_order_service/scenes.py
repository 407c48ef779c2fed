"""What play.py plays: orders over HTTP, a killed process, a backlog, and a count of what came of it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
from database import free_port
from orders import Base, Order, app, engine, process, sessions
from sqlalchemy import insert, text

ORDERS = int(os.environ.get("ORDERS", "2000"))
BACKLOG = int(os.environ.get("ORDERS_BACKLOG", "20000"))
EVERY = os.environ.setdefault("ORDERS_EVERY", "1")  # seconds; in the service it is a minute
PROCESSES = 3
CLIENTS = 20
LIMIT = 600  # seconds for all of it
MEMORY = 100  # MB that a process may use at most, and
GROWTH = 10  # MB by which the backlog may raise it
LOG = Path("order-service.log")
WEB_LOG = Path("order-service-web.log")
COUNTS = """
select count(*), count(*) filter (where is_shipped),
       (select count(*) from order_service.shipment),
       (select count(distinct order_id) from order_service.shipment),
       (select count(*) from order_service.shipment where attempt > 1)
from order_service.orders
"""


async def play() -> int:
    await prepare()
    async with asyncio.timeout(LIMIT), app, running("worker.py", log=LOG) as workers, serving() as url:
        await until(all_work, workers)
        print(f"{PROCESSES} processes run, each with a timer of {EVERY} s; their merged log is {LOG}")
        await post_orders(url)
        await until(is_drained, workers)
        first, children = await memory()
        await insert_backlog(BACKLOG)
        began = time.monotonic()
        await until(is_drained, workers)
        print(f"drained it in {time.monotonic() - began:.1f} s")
        last, _ = await memory()
        workers.terminate()
        code = await workers.wait()
    print_log()
    verdicts = [await verify(), verify_memory(first, last, children), code == 0]
    await engine.dispose()
    print("every order was shipped once" if all(verdicts) else "SOMETHING IS WRONG: see above")
    return 0 if all(verdicts) else 1


# --- what happens -----------------------------------------------------------------------------------------------------


async def prepare() -> None:
    """Make empty tables."""
    async with engine.begin() as connection:
        for schema in ("order_service", "order_jobs"):
            await connection.execute(text(f"drop schema if exists {schema} cascade"))
        await connection.execute(text("create schema order_service"))
        await connection.run_sync(Base.metadata.create_all)


async def post_orders(url: str) -> None:
    """Post orders from several clients at once; halfway through, kill a process that holds some of them."""
    numbers = iter(range(ORDERS))
    began = time.monotonic()
    async with httpx.AsyncClient(base_url=url, timeout=60) as http, asyncio.TaskGroup() as group:

        async def client() -> None:
            for number in numbers:
                if number == ORDERS // 2:
                    group.create_task(kill_one())
                answer = await http.post("/order", json={"item": "book", "quantity": 1 + number % 3})
                answer.raise_for_status()

        await asyncio.wait([group.create_task(client()) for _ in range(CLIENTS)])
        print(f"posted {ORDERS:,} orders from {CLIENTS} clients in {time.monotonic() - began:.1f} s")


async def kill_one() -> None:
    """Kill a process in the middle of a batch."""
    pids = {view.heartbeat.worker_id: view.heartbeat.pid for view in await app.workers()}
    deadline = time.monotonic() + 10
    while True:
        held = Counter(dict.fromkeys(pids, 0))
        held.update(lease.worker_id for lease in await app.leases())
        worker_id, count = held.most_common(1)[0]
        if count >= 10 or time.monotonic() > deadline:
            os.kill(pids[worker_id], signal.SIGKILL)
            print(f"kill -9 {pids[worker_id]}: {worker_id} held {count} orders")
            return
        await asyncio.sleep(0.005)


async def insert_backlog(count: int) -> None:
    """Write many orders and their jobs in one transaction."""
    began = time.monotonic()
    rows = [{"item": "book", "quantity": 1}] * count
    async with sessions.begin() as session:
        order_ids = await session.scalars(insert(Order).returning(Order.order_id), rows)
        await process.options(using=session).enqueue_many([process.call(order_id) for order_id in order_ids])
    print(f"inserted a backlog of {count:,} orders in one transaction of {time.monotonic() - began:.1f} s")


# --- what came of it --------------------------------------------------------------------------------------------------


async def all_work() -> bool:
    return len(await app.workers()) == PROCESSES


async def is_drained() -> bool:
    return not any(queue.ready or queue.scheduled or queue.running for queue in await app.queues.list())


async def memory() -> tuple[list[int], list[int]]:
    """Return the highest resident memory so far, in MB, of each living process and of each of their job children."""
    if not sys.platform.startswith("linux"):
        return [], []
    folders = [Path(f"/proc/{view.heartbeat.pid}") for view in await app.workers()]
    living = [folder for folder in folders if folder.exists()]  # the killed one has none
    return highest(living), highest([child for folder in living for child in children_of(folder)])


def children_of(process: Path) -> list[Path]:
    lists = [thread.read_text("ascii") for thread in process.glob("task/*/children")]
    return [Path(f"/proc/{pid}") for pid in " ".join(lists).split()]


def highest(processes: list[Path]) -> list[int]:
    statuses = [(process / "status").read_text("ascii") for process in processes if process.exists()]
    return sorted(int(status.partition("VmHWM:")[2].split()[0]) // 1024 for status in statuses)


async def verify() -> bool:
    """Count: every order has one shipment, and no job is left or failed."""
    async with engine.connect() as connection:
        ordered, shipped, shipments, distinct, repeated = (await connection.execute(text(COUNTS))).one()
    async with app:
        queues = await app.queues.list()
    left = sum(queue.ready + queue.scheduled + queue.blocked + queue.running for queue in queues)
    failed = sum(queue.failed for queue in queues)
    print(f"orders {ordered}, shipped {distinct}, doubled {shipments - distinct}, missing {ordered - distinct}")
    print(f"jobs left {left}, failed {failed}, completed at a second attempt {repeated}")
    return ordered == shipped == shipments == distinct and left == failed == 0


def verify_memory(first: list[int], last: list[int], children: list[int]) -> bool:
    if not sys.platform.startswith("linux"):
        print("memory was not measured: it is read from /proc, which only Linux has")
        return True
    print(f"VmHWM of each process after {ORDERS} orders: {first} MB; after {BACKLOG} more: {last} MB")
    print(f"VmHWM of {len(children)} job children, which ran the orders of the killed process: {children} MB")
    bound = min(MEMORY, first[-1] + GROWTH) if first else 0
    return len(first) == len(last) == PROCESSES and last[-1] <= bound and max(children, default=0) <= MEMORY


def print_log() -> None:
    """Print the merged log, shortened where one order follows another."""
    lines = LOG.read_text("utf-8").splitlines()
    for are_orders, group in itertools.groupby(lines, lambda line: line.endswith(" shipped")):
        block = list(group)
        for line in block[:3] if are_orders else block:
            print(f"    {line[:115]}")
        if are_orders and len(block) > 3:
            print(f"    … and {len(block) - 3} more")


# --- the programs -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def running(*command: str, log: Path) -> AsyncGenerator[asyncio.subprocess.Process]:
    folder = Path(__file__).parent
    with log.open("wb") as file:
        program = await asyncio.create_subprocess_exec(sys.executable, *command, cwd=folder, stdout=file, stderr=file)
    try:
        yield program
    finally:
        with contextlib.suppress(ProcessLookupError):
            program.terminate()
        await program.wait()


@asynccontextmanager
async def serving() -> AsyncGenerator[str]:
    """Run the web application on a free port, and yield its URL once it answers."""
    port = str(free_port())
    command = ("-m", "uvicorn", "web:web", "--port", port, "--no-access-log", "--timeout-keep-alive", "60")
    async with running(*command, log=WEB_LOG) as web, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:

        async def answers() -> bool:
            try:
                return (await http.get("/openapi.json")).is_success
            except httpx.TransportError:
                return False

        await until(answers, web)
        yield str(http.base_url)


async def until(look: Callable[[], Awaitable[bool]], program: asyncio.subprocess.Process) -> None:
    """Wait until something is so, as long as a program runs."""
    while not await look():
        if program.returncode is not None:
            sys.exit(f"a program ended with code {program.returncode}: see {LOG} and {WEB_LOG}")
        await asyncio.sleep(0.1)
