"""What is acknowledged is on the disk: counted at the system calls."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.servers.tracing import require_strace, unless_refused

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def strace():
    require_strace()


PROGRAM = """
    import os, sys
    from holdfast import App

    app = App(sys.argv[1])

    @app.task
    async def noop(n: int) -> None: ...

    noop.sync.enqueue(n=0)
    for n in range(5):
        os.write(1, b"before\\n")
        noop.sync.enqueue(n=n)
        os.write(1, b"acknowledged\\n")
    app.sync.close()
"""


def traced(tmp_path: Path, query: str) -> list[str]:
    """Return the system calls between the enqueues and their acknowledgements, in order."""
    trace = tmp_path / "trace"
    url = f"sqlite:///{tmp_path}/jobs.db{query}"
    command = ["strace", "-f", "-qq", "-o", str(trace), "-e", "trace=fdatasync,fsync,write", sys.executable]
    program = subprocess.run(
        [*command, "-c", textwrap.dedent(PROGRAM), url], capture_output=True, text=True, timeout=50, check=False
    )
    unless_refused(program)
    assert program.returncode == 0, program.stderr
    calls = []
    for line in trace.read_text().splitlines():
        found = re.search(r'(write\(1, "(before|acknowledged)|fdatasync|fsync)', line)
        if found and "resumed" not in line:
            calls.append(found[2] or "sync")
    return calls[calls.index("before") : len(calls) - calls[::-1].index("acknowledged")]


def test_five_enqueues_are_five_syncs_each_before_its_acknowledgement(tmp_path):
    assert traced(tmp_path, "") == ["before", "sync", "acknowledged"] * 5


def test_relaxed_enqueues_are_acknowledged_without_a_sync(tmp_path):
    assert traced(tmp_path, "?synchronous=normal") == ["before", "acknowledged"] * 5


FAILING = """
    import sys
    from holdfast import App, StoreError

    app = App(sys.argv[1])

    @app.task
    async def noop(n: int) -> None: ...

    for n in range(8):
        try:
            noop.options(job_id=f"0190a8c0-0000-7000-8000-00000000000{n}").sync.enqueue(n=n)
        except StoreError as error:
            print("refused", n, type(error).__name__)
        else:
            print("acknowledged", n)
    print("kept", *sorted(job.id[-1] for job in app.jobs.sync.list("ready").jobs))
    app.sync.close()
"""


@pytest.mark.parametrize("failing", [6, 8])
def test_a_sync_that_fails_is_told_and_what_was_acknowledged_is_kept(tmp_path, failing):
    fault = f"inject=fdatasync:error=EIO:when={failing}"
    command = ["strace", "-f", "-qq", "-o", str(tmp_path / "trace"), "-e", fault, sys.executable]
    program = subprocess.run(
        [*command, "-c", textwrap.dedent(FAILING), f"sqlite:///{tmp_path}/jobs.db"],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    unless_refused(program)
    assert program.returncode == 0, program.stderr
    lines = [line.split() for line in program.stdout.splitlines()]
    acknowledged = {line[1] for line in lines if line[0] == "acknowledged"}
    refused = [line[2] for line in lines if line[0] == "refused"]

    assert refused in (["OutcomeUnknown"], ["StoreUnavailable"]), program.stdout
    assert len(acknowledged) == 7
    assert acknowledged <= set(lines[-1][1:])
