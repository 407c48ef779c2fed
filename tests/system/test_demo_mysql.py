"""`holdfast demo` on MariaDB and MySQL: effects and completions commit together, in a database of its own."""

from __future__ import annotations

import secrets
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.servers import mysql
from tests.system.demo_program import SMALL, Demo, told

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


class MysqlDemo(Demo):
    """A demo in the database that it makes."""

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        return mysql.run(f"{self.url}_demo", statement)


@pytest.fixture(params=["mariadb", "mysql"])
def demo(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MysqlDemo]:
    server = mysql.server_url(request.param)
    name = f"shop_{secrets.token_hex(4)}"
    yield MysqlDemo(tmp_path, server + name)
    mysql.run(server, f"drop database if exists {name}_demo")


def test_a_run_with_a_killed_worker_that_was_interrupted_takes_effect_once_and_leaves_nothing(demo: MysqlDemo):
    with demo.start(*SMALL, "--jobs", "6000", "--kill", "1") as program:
        assert program.stdout is not None
        for line in program.stdout:
            if line.startswith("consuming") and not line.startswith("consuming 0"):
                program.send_signal(signal.SIGINT)
                break
        rest = program.stdout.read()
    assert program.returncode == 130, rest

    output = demo.run(*SMALL, "--kill", "1")
    assert "Continuing the unfinished run." in output
    rows = told(output)
    assert rows["produced"] == ["6,000", "6,000", "ok"]
    assert rows["completed"][2] == rows["doubled"][2] == rows["lost"][2] == "ok"
    demo.run("clean", "--yes")
    assert mysql.run(demo.url.rpartition("/")[0] + "/", "show databases like 'shop\\_%\\_demo'") == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("insert into holdfast_demo_effect select * from holdfast_demo_effect where job_id = {id}", "doubled"),
        ("delete from holdfast_demo_effect where job_id = {id}", "lost"),
    ],
)
def test_a_doubled_and_a_lost_job_are_found_out_and_named(demo: MysqlDemo, change: str, message: str):
    demo.run(*SMALL, "--kill", "0", "--jobs", "100")
    job_id = demo.change(change)
    output = demo.run("verify", code=1)
    assert told(output)[message][2] != "ok"
    assert job_id in output
