"""The tutorials are followed to the letter: every program and command runs, and prints what the page shows."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.docs.test_documentation import UNTIL_CONSUMED, Command, blocks, commands, environment, shell

JOB = "docs/tutorial/first-job.md"
STREAM = "docs/tutorial/first-stream.md"
JOB_ID = re.compile(r"\b\d+\.[0-9a-f]{4}\b|\b01[0-9a-f]{6}-\S+")  # of a list, or whole


class Reader:
    """Follows a tutorial in an empty folder: writes its files and runs its commands, in the order of the page."""

    def __init__(self, page: str, folder: Path) -> None:
        self.folder = folder
        self._blocks = blocks(page)
        self._commands = commands(page)

    def write(self, heading: str, *, to: str = "", mode: str = "w") -> None:
        """Write the block that begins with this comment into its file."""
        (text,) = [block for block in self._blocks if block.startswith(f"# {heading}\n")]
        with (self.folder / (to or heading)).open(mode, encoding="utf-8") as file:
            file.write(text)

    def command(self, beginning: str) -> Command:
        """Return the next command of the page that begins so."""
        for number, command in enumerate(self._commands):
            if command.text.startswith(beginning):
                del self._commands[: number + 1]
                return command
        raise AssertionError(f"no further command begins with {beginning!r}")

    def run(self, beginning: str, *, job_id: str = "") -> str:
        """Run the next command that begins so, check the shown output, and return the real one."""
        command = self.command(beginning)
        output = shell(self.folder, JOB_ID.sub(job_id, command.text) if job_id else command.text)
        if command.text.startswith("python "):
            assert JOB_ID.sub("ID", output) == JOB_ID.sub("ID", command.output)
        else:
            shown = JOB_ID.sub("", command.output.partition("\n")[0]).split()
            assert set(shown) <= set(re.split(r"[\t\n ]+", output)), f"{command.text}: another heading"
        return output

    @contextmanager
    def worker(self, *, codes: tuple[int, ...] = (0,)) -> Iterator[None]:
        """Run the worker that the page starts next, while the block runs; it must exit with one of these codes."""
        words = self.command("holdfast worker run").text.split()
        worker = subprocess.Popen(words, cwd=self.folder, env=environment(), stderr=subprocess.DEVNULL)
        try:
            yield
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(timeout=20) in codes
        finally:
            worker.kill()
            worker.wait()


@pytest.fixture(autouse=True)
def app_in_the_environment(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    page = STREAM if "stream" in request.node.name else JOB
    (export,) = [command.text for command in commands(page) if command.text.startswith("export HOLDFAST_APP=")]
    monkeypatch.setenv("HOLDFAST_APP", export.partition("=")[2])
    monkeypatch.delenv("HOLDFAST_URL", raising=False)


@pytest.mark.slow
def test_the_job_of_the_tutorial_runs_and_the_failed_one_is_repaired(tmp_path: Path):
    reader = Reader(JOB, tmp_path)
    for name in ("hello.py", "ask.py", "fail.py"):
        reader.write(name)
    with reader.worker():
        reader.run("python ask.py")
        assert "completed" in reader.run("holdfast job list")

    reader.write("added to hello.py: a task with a bug", to="hello.py", mode="a")
    with Reader(JOB, tmp_path).worker():
        reader.run("python fail.py")
        failed = reader.run("holdfast job list --state failed").splitlines()[-1]
    found = JOB_ID.search(failed)
    assert found
    assert "ZeroDivisionError" in reader.run("holdfast job show", job_id=found[0])

    reader.write("in hello.py: the bug is fixed", to="hello.py", mode="a")
    source = (tmp_path / "hello.py").read_text(encoding="utf-8")
    bug, fixed = [match.start() for match in re.finditer(r"@app\.task\(max_attempts", source)]
    (tmp_path / "hello.py").write_text(source[:bug] + source[fixed:], encoding="utf-8")
    reader.run("holdfast job retry", job_id=found[0])
    with Reader(JOB, tmp_path).worker():
        wait = f"from hello import app; print(app.job({found[0]!r}).sync.result(timeout=20))"
        assert shell(tmp_path, f'python -c "{wait}"') == "0.0\n"
    assert "failed" not in reader.run("holdfast job list")


@pytest.mark.slow
def test_the_job_of_a_killed_worker_in_the_tutorial_runs_again_at_once(tmp_path: Path):
    reader = Reader(JOB, tmp_path)
    reader.write("hello.py")
    reader.write("added to hello.py: a slow task", to="hello.py", mode="a")
    reader.write("slow.py")
    reader.command("python fail.py")

    slow = (tmp_path / "slow.py").read_text(encoding="utf-8")
    (tmp_path / "slow.py").write_text(slow.replace("seconds=20", "seconds=5"), encoding="utf-8")
    with (
        reader.worker(codes=(0, 128 + signal.SIGKILL)),  # the latter if the killed process was not started again yet
        subprocess.Popen(
            ["python", "slow.py"], cwd=tmp_path, env=environment(), text=True, stdout=subprocess.PIPE
        ) as program,
    ):
        try:
            shell(tmp_path, "until [ -s hello.db ] && holdfast lease list | grep -q sleep; do sleep 0.1; done")
            (lease,) = table(reader.run("holdfast lease list"))
            workers = table(reader.run("holdfast worker list"))
            (pid,) = [row["pid"] for row in workers if row["worker"] == lease["worker"]]
            shell(tmp_path, f"kill -9 {pid}")
            output, _ = program.communicate(timeout=40)
        finally:
            program.kill()
    assert output == "slept for 5.0 seconds\n"


def table(output: str) -> list[dict[str, str]]:
    """Return the rows of a list in a pipe."""
    heading, *lines = [line.split("\t") for line in output.splitlines()]
    return [dict(zip(heading, line, strict=True)) for line in lines]


@pytest.mark.slow
def test_the_stream_of_the_tutorial_is_consumed(tmp_path: Path):
    reader = Reader(STREAM, tmp_path)
    for name in ("shop.py", "rename.py", "decide.py"):
        reader.write(name)
    reader.run("python rename.py")
    reader.run("python decide.py")

    with reader.worker():
        shell(tmp_path, f"python -c '{UNTIL_CONSUMED.format('shop')}'")
        reader.run("holdfast consumer list")
        reader.run("python -c")
        reader.run("holdfast node list")
        reader.run("holdfast consumer list --partitions")
