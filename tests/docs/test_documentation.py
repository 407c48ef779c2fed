"""What the documentation shows is run, and where it points is there."""

from __future__ import annotations

import ast
import os
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROMPT = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)#]+?)(?:#[^)]*)?\)")


def blocks(page: str) -> list[str]:
    return BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


UNTIL_CONSUMED = """
import time
from {} import app
while not (seen := app.consumers.sync.list()) or not seen[0].shares or seen[0].lag: time.sleep(0.1)
"""


class Command(NamedTuple):
    """A command that a page shows, and the output that it shows below it."""

    text: str
    output: str


def commands(page: str) -> list[Command]:
    """Return the commands in the console blocks of a page."""
    found = CONSOLE.findall((ROOT / page).read_text(encoding="utf-8"))
    return [Command(text, output) for block in found for text, output in PROMPT.findall(block)]


def environment() -> dict[str, str]:
    """Return an environment in which `python` and `holdfast` are those of the tests."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def shell(folder: Path, command: str) -> str:
    """Run a command as a reader would, and return its output."""
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment(), capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def run(folder: Path, *command: str, timeout: float = 50) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 125


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    missing = [
        target
        for target in LINK.findall(page.read_text(encoding="utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]

    assert missing == []


def test_the_list_of_decisions_is_complete_and_in_order():
    listed = re.findall(r"^\| \[\d{4}\]\((\S+)\)", (ROOT / "docs/decisions/README.md").read_text("utf-8"), re.MULTILINE)

    assert listed == sorted(page.name for page in ROOT.glob("docs/decisions/0*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_python_example_can_be_read_by_python(page):
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        compile(block, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_the_commands_of_the_readme_charge_every_order_once(tmp_path):
    (tmp_path / "orders.py").write_text(blocks("README.md")[0], encoding="utf-8")
    install, enqueue, work, look, count = commands("README.md")

    assert "pip install" in install.text
    assert shell(tmp_path, enqueue.text) == enqueue.output
    shell(tmp_path, work.text)
    assert re.search(r"\b1,?000\b", shell(tmp_path, look.text))
    assert shell(tmp_path, count.text) == count.output == "(1000, 1000)\n"


def test_the_consumer_that_the_documentation_shows_bills_the_event_once(tmp_path):
    (consumer,) = [block for block in blocks("docs/howto/effect-once.md") if "companies.py" in block]
    (tmp_path / "companies.py").write_text(consumer, encoding="utf-8")
    run(tmp_path, "companies.py")

    consume(tmp_path, "companies")

    assert rows(tmp_path / "companies.db", "select company from invoice") == [("company-7",)]


def consume(folder: Path, module: str) -> None:
    """Run a worker until its consumers have handled every event."""
    command = [sys.executable, "-m", "holdfast", "worker", "run", f"{module}:app"]
    worker = subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL)
    try:
        run(folder, "-c", UNTIL_CONSUMED.format(module))
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=20) == 0
    finally:
        worker.kill()
        worker.wait()


def rows(file: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute(query).fetchall()


def test_the_tests_that_the_documentation_shows_pass(tmp_path):
    for block in blocks("docs/howto/test-your-tasks.md"):
        (tmp_path / block.split()[1]).write_text(block, encoding="utf-8")

    assert "6 passed" in run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly")


def test_reading_and_deciding_as_shown_renames_once(tmp_path):
    last, everything, decide = blocks("docs/howto/read-streams.md")
    ask = """
async def main() -> None:
    await rename("company-7", "Ada & Co")
    await rename("company-7", "Ada & Co")
    await rename("company-8", "Bob Ltd")
    await rename("company-7", "Ada Ltd")
    await all_events()
    print(await name_of("company-7"))
    await app.close()

import asyncio
asyncio.run(main())
"""
    (tmp_path / "read.py").write_text(last + everything + decide + ask, encoding="utf-8")

    *events, name = run(tmp_path, "read.py").splitlines()

    assert sorted(events) == ["company-7 1 renamed", "company-7 2 renamed", "company-8 1 renamed"]
    assert name == "Ada Ltd"


def test_a_handler_reads_in_its_transaction_as_shown(tmp_path):
    *_, pay_out = blocks("docs/reference/handlers.md")
    before = """
from holdfast import App, Cancel, Context

app = App("sqlite:///bank.db")

"""
    after = """
@app.task
async def fill(ctx: Context) -> None:
    async with ctx.transaction() as connection:
        await connection.execute("create table balance (account integer, cents integer)")
        await connection.execute("insert into balance values (7, 100)")

fill.sync.enqueue()
app.sync.drain("default")
jobs = [pay_out.sync.enqueue(account=7, cents=cents) for cents in (70, 70)]
app.sync.drain("default", batch=1)
print(*(job.sync.state() for job in jobs))
"""
    (tmp_path / "bank.py").write_text(before + pay_out + after, encoding="utf-8")

    assert run(tmp_path, "bank.py") == "completed cancelled\n"
    with sqlite3.connect(tmp_path / "bank.db") as connection:
        assert connection.execute("select cents from balance").fetchall() == [(30,)]
    connection.close()
