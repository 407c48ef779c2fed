"""What PostgreSQL acknowledges to us is in its log on the disk: seen at the system calls of its own processes."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path

import psycopg
import pytest
from tests.servers.missing import give_up
from tests.servers.postgres import NoServerError, find_binaries, own_server
from tests.servers.tracing import require_strace, unless_refused
from tests.system.harness import eventually

from holdfast import App

pytestmark = pytest.mark.slow
_CALLS = "trace=fdatasync,fsync,pwrite64,pwritev,sendto,recvfrom"
_COMMITS = 5


@pytest.fixture
def durable_server(tmp_path):
    require_strace()
    try:
        find_binaries()
    except NoServerError as error:
        give_up("PostgreSQL", str(error))
    with own_server(tmp_path / "server", fsync="on", synchronous_commit="on", wal_sync_method="fdatasync") as server:
        yield server


@pytest.fixture(autouse=True)
def folder(tmp_path):
    (tmp_path / "server").mkdir()


def test_an_enqueue_is_answered_only_after_the_log_of_the_server_was_synced(tmp_path: Path, durable_server):
    app = App(durable_server.url + "?pool=1")

    @app.task
    async def noop(n: int) -> None: ...

    noop.sync.enqueue(n=0)
    with psycopg.connect(durable_server.url, autocommit=True) as connection:
        (found,) = (
            connection.execute(
                "select array_agg(pid) from pg_stat_activity where application_name = 'holdfast' and pid <> pg_backend_pid()"
            ).fetchone()
            or ()
        )
    trace = tmp_path / "trace"
    watched = [part for pid in found for part in ("-p", str(pid))]
    strace = subprocess.Popen(
        ["strace", "-f", "-ttt", "-s", "65536", "-o", str(trace), "-e", _CALLS, *watched],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        time.sleep(0.2)  # what refuses refuses at once
        if strace.poll() is not None:
            unless_refused(subprocess.CompletedProcess(strace.args, strace.returncode, None, strace.stderr.read()))  # type: ignore[union-attr]
        eventually(lambda: "attached" in str(_said(strace)) or trace.exists(), "the sessions are traced")
        time.sleep(0.5)  # strace tells of its attachment before it has stopped every process
        for n in range(_COMMITS):
            noop.sync.enqueue(n=n)
    finally:
        strace.send_signal(signal.SIGINT)
        strace.wait(20)
        app.sync.close()

    commits = _commits(trace.read_text())
    assert len(commits) >= _COMMITS
    assert all(commits), "a commit was answered before the log was synced"


def _said(strace: subprocess.Popen[str]) -> str:
    return "attached" if strace.poll() is None else ""


def _commits(trace: str) -> list[bool]:
    """For each answer that says COMMIT: whether its own session had synced since the request."""
    synced: dict[str, bool] = {}
    found: list[bool] = []
    for line in trace.splitlines():
        pid = line.split()[0]
        if "recvfrom" in line:
            continue
        if re.search(r"fdatasync|fsync", line):
            synced[pid] = True
        elif "sendto" in line and ("COMMIT" in line or "INSERT" in line or "SELECT" in line):
            if "COMMIT" in line:
                found.append(synced.get(pid, False))
                synced[pid] = False
    return found
