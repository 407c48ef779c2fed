"""`holdfast demo` on Redis, where effects are commands that are queued."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.servers.redis import connection_of, drop_store, new_store_url
from tests.system.demo_program import SMALL, Demo, told

from holdfast import App

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    url = new_store_url("valkey")
    yield Demo(tmp_path, url)
    drop_store(f"{url}_demo")


def prefix_of(demo: Demo) -> str:
    return "{holdfast:" + demo.url.partition("name=")[2] + "_demo}:"


def test_in_a_run_with_a_killed_worker_every_job_takes_effect_once(demo: Demo):
    output = demo.run(*SMALL, "--kill", "1")

    rows = told(output)
    assert rows["produced"] == ["500", "500", "ok"]
    assert rows["completed"][2] == rows["doubled"][2] == rows["lost"][2] == "ok"
    assert "although a worker was killed" in output


def test_an_interrupted_run_goes_on_where_it_stopped(demo: Demo):
    with demo.start(*SMALL, "--jobs", "20000", "--kill", "0") as program:
        assert program.stdout is not None
        for line in program.stdout:
            if line.startswith("consuming") and not line.startswith("consuming 0"):
                program.send_signal(signal.SIGINT)
                break
        rest = program.stdout.read()
    assert program.returncode == 130, rest

    output = demo.run(*SMALL, "--kill", "0")
    assert "Continuing the unfinished run." in output
    assert told(output)["produced"] == ["20,000", "20,000", "ok"]


def test_a_lost_a_doubled_and_a_stray_effect_are_found_out_and_named(demo: Demo):
    demo.run(*SMALL, "--kill", "0", "--jobs", "100")
    client: Any = connection_of(demo.url)
    at = prefix_of(demo)
    effects = f"{at.rstrip(':')}/holdfast_demo_effect"
    (doubled,) = client.lrange(effects, 1, 1)
    client.lpop(effects)
    client.rpush(effects, doubled)
    output = demo.run("verify", code=1)
    assert "1 job lost: neither completed, nor failed, nor waiting: 0" in output
    assert "1 job took effect more than once: 0" in output

    (ledger,) = [key for key in client.scan_iter(match=f"{at}c[0-9]*") if client.llen(key) == 100]
    client.rpop(ledger)
    assert "1 job took effect, but the ledger does not confirm it: 0" in demo.run("verify", code=1)


def test_the_demo_leaves_the_store_of_the_url_alone_and_no_job_behind(demo: Demo):
    async def theirs() -> int:
        async with App(demo.url) as app:
            await app.task(queue="orders", name="charge")(lambda: None).enqueue()
            return await app.queues.depth("orders")

    assert asyncio.run(theirs()) == 1
    demo.run(*SMALL, "--kill", "0", "--jobs", "60")
    demo.run("clean", "--yes")
    client: Any = connection_of(demo.url)
    at = prefix_of(demo)
    assert list(client.scan_iter(match=f"{at}j*")) == list(client.scan_iter(match=f"{at[:-1]}/*")) == []
    assert asyncio.run(theirs()) == 2
    drop_store(demo.url)
