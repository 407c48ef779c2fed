"""The order service ships every order once, and its verdict finds one that was not."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from tests.servers.missing import give_up
from tests.servers.postgres import NoServerError, server_url

SERVICE = Path(__file__).parents[2] / "examples" / "05_order_service"
PREPARE = """
import asyncio
import httpx
import scenes
from orders import app, engine
from sqlalchemy import text
from web import web

async def sql(statement):
    async with engine.begin() as connection:
        return await connection.execute(text(statement))

async def post(http, **order):
    return (await http.post("/order", json=order)).status_code

async def main():
    await scenes.prepare()
    transport = httpx.ASGITransport(web, raise_app_exceptions=False)
    async with app, httpx.AsyncClient(transport=transport, base_url="http://shop") as http:
        await play(http)

"""
RUN = "\nasyncio.run(main())\n"


@pytest.fixture
def database() -> Iterator[str]:
    """A database for one test: the example has fixed names of schemas."""
    try:
        server = server_url()
    except NoServerError as error:
        give_up("PostgreSQL", str(error))
    name = f"orders_{secrets.token_hex(6)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"create database {name}".encode())
        base = server.partition("?")[0].removesuffix(f"/{conninfo_to_dict(server)['dbname']}")
        try:
            yield f"{base}/{name}"
        finally:
            connection.execute(f"drop database {name} with (force)".encode())


def run(*command: str, folder: Path, **environment: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(SERVICE), *sys.path]), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
        check=False,
    )
    return done.returncode, done.stdout


def play(steps: str, folder: Path, database: str) -> str:
    """Run steps that have the service and a client of it at hand, and return what they print."""
    (folder / "steps.py").write_text(f"{PREPARE}\nasync def play(http):\n{steps}{RUN}", encoding="utf-8")
    code, output = run("steps.py", folder=folder, ORDERS_URL=database)
    assert code == 0, output
    return output


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_order_is_shipped_once_though_a_process_is_killed(tmp_path: Path):
    code, output = run(str(SERVICE / "play.py"), folder=tmp_path, ORDERS="300", ORDERS_BACKLOG="2000")

    assert code == 0, output
    killed = re.search(r"kill -9 \d+: (w\d)(-\w+) held \d+ orders", output)
    assert killed is not None, output
    assert re.search(rf"\[supervisor\] .*\b{killed[1]}{killed[2]} killed by signal 9", output), output
    assert len(set(re.findall(rf"\[{killed[1]}\].* worker ({killed[1]}-\w+) is running", output))) == 2, output
    assert all(f"[w{number}] " in output for number in (1, 2, 3)), "the logs are merged"
    assert "orders 2300, shipped 2300, doubled 0, missing 0" in output
    assert "jobs left 0, failed 0" in output
    assert "every order was shipped once" in output


def test_an_order_and_its_job_are_written_together_or_not_at_all(tmp_path: Path, database: str):
    steps = """
    print(await post(http, item="book", quantity=2), await post(http, item="book", quantity=0))
    await sql("alter table order_service.orders add unique (item) deferrable initially deferred")
    print(await post(http, item="book", quantity=1), await post(http, item="pen", quantity=1))
    print([queue.ready for queue in await app.queues.list()], await app.drain("orders", batch=50))
    print((await sql("select item, quantity, is_shipped from order_service.orders order by order_id")).all())
"""
    answers, later, jobs, orders = play(steps, tmp_path, database).splitlines()

    assert answers == "201 422"
    assert later == "500 201", "the commit of the third order fails, after its job was enqueued"
    assert jobs == "[2] 2 completed"
    assert orders == "[('book', 2, True), ('pen', 1, True)]"


def test_the_verdict_finds_doubled_missing_and_waiting_orders(tmp_path: Path, database: str):
    steps = """
    await scenes.insert_backlog(5)
    print(await scenes.verify())
    await app.drain("orders", batch=50)
    print(await scenes.verify())
    await sql("update order_service.shipment set order_id = 1 where order_id = 2")
    print(await scenes.verify())
    print(scenes.verify_memory([50, 50, 50], [50, 50, 59], [70]), scenes.verify_memory([50] * 3, [50, 50, 61], []))
    print(scenes.verify_memory([95] * 3, [95, 95, 101], []), scenes.verify_memory([50] * 2, [50] * 2, []))
    print(scenes.verify_memory([50] * 3, [50] * 3, [70, 101]), scenes.verify_memory([50] * 3, [50] * 3, []))
"""
    lines = [
        line for line in play(steps, tmp_path, database).splitlines() if not line.startswith(("VmHWM", "inserted"))
    ]

    assert lines == [
        *(
            "orders 5, shipped 0, doubled 0, missing 5",
            "jobs left 5, failed 0, completed at a second attempt 0",
            "False",
        ),
        *(
            "orders 5, shipped 5, doubled 0, missing 0",
            "jobs left 0, failed 0, completed at a second attempt 0",
            "True",
        ),
        *(
            "orders 5, shipped 4, doubled 1, missing 1",
            "jobs left 0, failed 0, completed at a second attempt 0",
            "False",
        ),
        *("True False", "False False", "False True"),
    ]


def test_without_a_server_the_service_says_what_to_install(tmp_path: Path):
    program = "import database, pathlib\ndatabase.shutil.which = lambda name: None\n"
    program += "database.importlib.util.find_spec = lambda name: None\npathlib.Path.glob = lambda self, pattern: ()\n"
    code, output = run("-c", f"{program}database.find_binaries()", folder=tmp_path)

    assert code == 1
    assert "apt install postgresql" in output
    assert "ORDERS_URL=postgresql://" in output
