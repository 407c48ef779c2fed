"""The server of a run's own: how it dies, how it is kept, and that it never outlives the command."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from tests.servers.missing import give_up
from tests.torture.test_ends import report

from holdfast.cli.main import cli
from holdfast.cli.torture import command
from holdfast.errors import ConfigError
from holdfast.torture.log import Log
from holdfast.torture.nemesis.restart import KillServer
from holdfast.torture.plan import RunPlan, profile_of
from holdfast.torture.process_tree import descendants, is_alive
from holdfast.torture.report import RunReport
from holdfast.torture.run import own_postgres
from holdfast.torture.run_context import RunContext
from holdfast.torture.server import OwnServer, find_binaries
from holdfast.torture.server_processes import postmasters
from holdfast.torture.target import target_of

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def _binaries() -> None:
    try:
        find_binaries()
    except ConfigError as error:
        give_up("PostgreSQL", str(error))


@pytest.fixture
def server() -> Iterator[OwnServer]:
    with own_postgres() as server:
        yield server


def until(condition: object) -> None:
    give_up_at = time.monotonic() + PATIENCE
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < give_up_at
        time.sleep(0.02)


def test_a_killed_server_has_no_process_left(server: OwnServer):
    (postmaster,) = postmasters(server.data)
    with psycopg.connect(server.url) as connection:
        busy = connection.info.backend_pid
        processes = [postmaster, *descendants(postmaster)]
        assert busy in processes
        os.kill(busy, signal.SIGSTOP)  # as one that does not come to see that the postmaster is gone
        try:
            server.kill()
            assert not any(map(is_alive, processes))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(busy, signal.SIGKILL)
    server.start()
    with psycopg.connect(server.url) as connection:
        assert connection.execute("select 1").fetchone() == (1,)


async def test_a_restart_that_is_broken_off_leaves_the_server_up(server: OwnServer, tmp_path: Path, monkeypatch):
    killing, may_kill = threading.Event(), threading.Event()
    kill = server.kill

    def slowly() -> None:
        killing.set()
        assert may_kill.wait(PATIENCE)
        kill()

    monkeypatch.setattr(server, "kill", slowly)
    log = Log(tmp_path, "r", lambda _: None)
    plan = RunPlan(name="smoke", profile=profile_of("smoke", one_writer=False), seed=1)
    context = RunContext(plan=plan, log=log, fleet=None, target=target_of(server.url), server=server)  # type: ignore[arg-type]
    injecting = asyncio.create_task(KillServer().inject(context, random.Random(1)))
    assert await asyncio.to_thread(killing.wait, PATIENCE)

    injecting.cancel()
    await asyncio.sleep(0)
    may_kill.set()
    with contextlib.suppress(asyncio.CancelledError):
        await injecting

    assert injecting.cancelled()
    with psycopg.connect(server.url) as connection:
        assert connection.execute("select 1").fetchone() == (1,)
    log.close()


def test_a_kept_server_is_stopped_in_order_and_can_be_started_again():
    with own_postgres() as server:
        server.is_kept = True
        with psycopg.connect(server.url) as connection:
            connection.execute("create table evidence (it text)")
    assert postmasters(server.data) == []
    try:
        subprocess.run(shlex.split(server.how_to_start), check=True, capture_output=True, cwd="/", timeout=PATIENCE)
        with psycopg.connect(server.url) as connection:
            assert connection.execute("select count(*) from evidence").fetchone() == (0,)
    finally:
        stop = shlex.split(server.how_to_start)
        subprocess.run([*stop[:-1], "-m", "immediate", "stop"], check=True, capture_output=True, cwd="/")
        shutil.rmtree(server.data.parent)


def test_a_server_that_is_not_kept_leaves_nothing():
    with own_postgres() as server:
        pass
    assert not server.data.parent.exists()


@pytest.mark.parametrize("options", [[], ["--keep"]], ids=["bad", "kept"])
def test_the_command_leaves_the_data_of_a_bad_or_kept_run_and_says_how_to_start_it(options, monkeypatch, tmp_path):
    servers: list[OwnServer] = []

    def instead(run: Any) -> RunReport:
        servers.append(run.server)
        return report(is_clean=bool(options), history=str(run.history))

    monkeypatch.setattr(command, "_interruptible", instead)
    done = CliRunner().invoke(cli, ["torture", "--server", "postgresql", "--history", str(tmp_path / "h"), *options])

    (server,) = servers
    try:
        assert done.exit_code == (0 if options else 1)
        assert str(server.data) in done.stdout
        assert "pg_ctl" in done.stdout
        assert (server.data / "PG_VERSION").exists()
        assert not (server.data / "postmaster.pid").exists(), "it was stopped in order"
        assert postmasters(server.data) == []
    finally:
        shutil.rmtree(server.data.parent)


COMMAND = """
import sys
from holdfast.torture.run import own_postgres
with own_postgres() as server:
    print(server.data, flush=True)
    sys.stdin.read()
"""


def test_no_server_outlives_a_command_that_was_killed():
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    with process:
        assert process.stdout is not None
        data = Path(process.stdout.readline().decode().strip())
        (postmaster,) = postmasters(data)
        processes = [postmaster, *descendants(postmaster)]
        process.send_signal(signal.SIGKILL)
    until(lambda: not any(map(is_alive, processes)))
    until(lambda: not data.parent.exists())
