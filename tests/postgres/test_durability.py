"""What PostgreSQL acknowledges to us is in its log on the disk: seen at the system calls of its own processes."""

from __future__ import annotations

import re
import signal
import subprocess
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
_SESSIONS = "select pid from pg_stat_activity where application_name = 'holdfast'"


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
        pids = [row[0] for row in connection.execute(_SESSIONS)]
    trace = tmp_path / "trace"
    watched = [part for pid in pids for part in ("-p", str(pid))]
    strace = subprocess.Popen(
        ["strace", "-f", "-ttt", "-s", "65536", "-o", str(trace), "-e", _CALLS, *watched],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        eventually(lambda: strace.poll() is not None or all(map(_is_traced, pids)), "the sessions are traced")
        if strace.poll() is not None:
            unless_refused(subprocess.CompletedProcess(strace.args, strace.returncode, None, strace.communicate()[1]))
        for n in range(_COMMITS):
            noop.sync.enqueue(n=n)
    finally:
        strace.send_signal(signal.SIGINT)
        strace.communicate(timeout=20)
        app.sync.close()

    assert _syncs_and_answers(trace.read_text()) == ["sync", "answer"] * _COMMITS


def _is_traced(pid: int) -> bool:
    return re.search(r"^TracerPid:\s+[1-9]", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE) is not None


def _syncs_and_answers(trace: str) -> list[str]:
    """Return what the session that wrote has done, in order: synced the log, answered its client."""
    calls: dict[str, list[str]] = {}
    for line in trace.splitlines():
        pid = line.split()[0]
        if re.search(r"fdatasync.*= 0$", line):
            calls.setdefault(pid, []).append("sync")
        elif "sendto(" in line:
            calls.setdefault(pid, []).append("answer")
    (writing,) = [done for done in calls.values() if "sync" in done]
    return writing
