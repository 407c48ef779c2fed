"""A program that has made blocking calls on PostgreSQL and then forks its workers."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

LIMIT = 60

PROGRAM = """
import sys
from holdfast import App

app = App(sys.argv[1])

@app.task
def greet() -> None: ...

greet.sync.enqueue()
(claimed,) = app.sync.claim("default")
with claimed.sync.context().sync.transaction() as connection:
    connection.execute("select 1")
job = greet.sync.enqueue()
print("ended with", app.run_worker(processes=2, until_empty=True, poll_interval=0.05))
print("state", job.sync.state())
app.sync.close()
"""


def test_workers_are_forked_after_a_blocking_transaction(url: str, tmp_path: Path):
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(PROGRAM))
    command = [sys.executable, str(path), url]

    ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)

    assert ended.returncode == 0, ended.stderr
    assert "ended with 0" in ended.stdout
    assert "state completed" in ended.stdout
