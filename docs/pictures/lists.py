"""Prepare a store with something of everything, and take pictures of every command at 80 and 140 columns.

`make pictures` writes `build/pictures/job-list-80.svg` and so on; `--to DIR` writes elsewhere, and `--text` prints the
screens instead. `bench` and `torture` take minutes: their output is on the pages about performance and torture.
`server run` serves until it is stopped: `dashboard.py` has its pictures.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from demo import picture, record, screen
from rich.text import Text

from holdfast import App

WIDTHS = (80, 140)
PROGRAM = (sys.executable, "-m", "holdfast")
PATIENCE = 60.0  # seconds until the store must be as wanted

SHOP = """
import asyncio
from holdfast import App, Event

app = App("sqlite:///shop.db")


@app.task(queue="orders", max_attempts=2, retry=0.1)
async def charge(order_id: int, note: str = "") -> str:
    if order_id % 40 == 7:
        raise LookupError(f"there is no order {order_id}")
    return "charged"


@app.schedule("30 2 * * MON-FRI", name="newsletter", timezone="Europe/Vienna", kwargs={"to": "everybody"})
@app.task(queue="mails")
async def send(to: str) -> None:
    pass


@app.task(queue="reports")
async def report(month: int) -> None:
    await asyncio.sleep(3600)


@app.consumer("billing", category="companies", max_attempts=1, on_error="park")
async def bill(event: Event) -> None:
    if event.payload == {"number": 3}:
        raise ValueError("the address is incomplete")


def audit(event: Event) -> None:
    pass


for width in (80, 140):
    app.consumer(f"audit-{width}", category="companies")(audit)
"""

# All run at each width, on one store: first those that only look.
COMMANDS = (
    "job list",
    "job list --state failed",
    "job counts",
    "job show {failed}",
    "job show {failed} --show-args",
    "job explain {failed}",
    "job graph {failed}",
    "job explain {waiting}",
    "queue list",
    "task list",
    "schedule list",
    "schedule show newsletter",
    "lease list",
    "worker list",
    "consumer list",
    "consumer list --partitions",
    "consumer parked billing",
    "category list",
    "category show companies",
    "event read companies",
    "node list",
    "leader show",
    "schema check",
    "schema show",
    "doctor",
    "top --once",
    "job enqueue charge --app shop:app --arg order_id={width}",
    "job cancel --task send --yes",
    "job retry --state failed --yes",
    "job delete --state completed --yes",
    "queue pause mails",
    "queue limit mails --running 2 --rate 100/m",
    "queue list",
    "queue resume mails",
    "task pause send",
    "task limit send --running 1",
    "task resume send",
    """schedule add sweep-{width} send --app shop:app --every 10m --arg 'to="all"'""",
    "schedule pause newsletter",
    "schedule list",
    "schedule resume newsletter",
    "schedule run newsletter",
    "schedule remove sweep-{width}",
    "lease reset {leased}",
    "category create sales-{width} --partitions 4",
    "server token create reports-{width} --scope read",
    "server token list",
    "server token revoke reports-{width}",
    "event append companies --stream company-{width} --name moved --payload 1",
    "consumer retry billing",
    "consumer drop billing --yes",
    "consumer pause audit-{width}",
    "consumer reset audit-{width} --to end --yes",
    "consumer resume audit-{width}",
    "consumer pause audit-{width}",
    "consumer forget audit-{width} --yes",
    "schema install",
    "schema upgrade",
    "worker run shop:app --queues orders --until-empty",
    "demo --jobs 2000 --kill 1 --seed 7 --url sqlite:///demo-{width}.db",
    "demo produce --jobs 500 --fresh --seed 7 --url sqlite:///steps-{width}.db",
    "demo consume --url sqlite:///steps-{width}.db",
    "demo verify --url sqlite:///steps-{width}.db",
    "demo clean --yes --url sqlite:///steps-{width}.db",
)


async def fill(shop: Any) -> None:
    """Enqueue jobs and append events."""
    charged = await shop.charge.enqueue_many([{"order_id": number} for number in range(200)])
    await shop.send.options(after=charged[167:169]).enqueue(to="user-167")  # order 167 fails
    await shop.send.options(delay=600).enqueue_many([{"to": f"user-{number}"} for number in range(3)])
    await shop.report.options(order_key="2026").enqueue_many([{"month": month} for month in range(1, 4)])
    for number in range(12):
        await shop.app.append("companies", stream=f"company-{number}", name="renamed", payload={"number": number})


async def named_jobs(app: App) -> dict[str, str]:
    """Wait until the workers have done everything but the report; return the ids that commands name."""
    while True:
        completed = sum(count.completed for count in await app.jobs.counts(by_minute=False))
        failed = (await app.jobs.list("failed")).jobs
        consumers = await app.consumers.list()
        parked = sum(consumer.parked for consumer in consumers)
        lag = sum(consumer.lag for consumer in consumers)
        is_done = completed + len(failed) == 200 and parked and not lag
        leases = await app.leases()
        if is_done and leases and len(await app.workers()) == 2:
            (waiting, *_) = (await app.jobs.list("scheduled")).jobs
            return {"failed": failed[0].id, "waiting": waiting.id, "leased": leases[0].job_id}
        await asyncio.sleep(0.1)


@contextmanager
def worker(folder: Path, *options: str) -> Generator[subprocess.Popen[bytes]]:
    """Run a worker in the background; it is killed at the end."""
    command = [*PROGRAM, "worker", "run", "--app", "shop:app", "--app-dir", ".", "--lease", "5s", *options]
    with subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield process
        finally:
            process.kill()


async def prepare(folder: Path) -> dict[str, str]:
    """Fill the store and let the workers do what they can; return the ids that commands name."""
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    shop = importlib.import_module("shop")
    async with shop.app:
        await fill(shop)
        return await asyncio.wait_for(named_jobs(shop.app), PATIENCE)


async def wait_for_silence() -> None:
    """Wait until the killed worker counts as silent."""
    async with App("sqlite:///shop.db") as app:
        while not any(worker.silent > worker.heartbeat.lease for worker in await app.workers()):  # noqa: ASYNC110
            await asyncio.sleep(0.1)


def take(ids: dict[str, str], widths: Sequence[int], to: Path | None, folder: Path) -> None:
    """Run each command at each width, and write its picture, or print its screen."""
    short = {name: job_id[:13] for name, job_id in ids.items()}
    for words in COMMANDS:
        for width in widths:
            title = f"holdfast {words.format(**short, width=width)}"
            given = shlex.split(words.format(**ids, width=width))
            lines = screen(record([*PROGRAM, *given], folder, width, codes=(0, 1)))  # 1: there was nothing to do
            if to is None:
                print(f"\n$ {title}  ({width} columns)")  # noqa: T201
                print("\n".join(Text.from_ansi(line).plain for line in lines).rstrip())  # noqa: T201
            else:
                name = re.sub(r"\W+", "-", re.sub(r"\S*\{\w+\}\S*|sqlite:\S+", "", words)).strip("-")
                (to / f"{name}-{width}.svg").write_text(picture(title, lines, width), encoding="utf-8")


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--to", type=Path, default=Path("build/pictures"))
    parser.add_argument("--width", type=int, action="append", choices=WIDTHS, help="only at this width")
    parser.add_argument("--text", action="store_true", help="print the screens instead")
    options = parser.parse_args()
    to = None if options.text else options.to.resolve()
    if to is not None:
        to.mkdir(parents=True, exist_ok=True)
    os.environ["HOLDFAST_URL"] = "sqlite:///shop.db"
    with tempfile.TemporaryDirectory(prefix="holdfast-") as name:
        folder = Path(name)
        (folder / "shop.py").write_text(SHOP, encoding="utf-8")
        with worker(folder, "--worker-id", "web-1"), worker(folder, "--worker-id", "web-2") as second:
            ids = asyncio.run(prepare(folder))
            second.kill()
            asyncio.run(asyncio.wait_for(wait_for_silence(), PATIENCE))
            take(ids, options.width or WIDTHS, to, folder)


if __name__ == "__main__":
    main()
