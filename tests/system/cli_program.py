"""The command line as real processes: in pipes, and in a pseudo-terminal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Generator, Mapping
from pathlib import Path

PROGRAM = (sys.executable, "-m", "holdfast")
SOON = 20.0

SHOP = """
import asyncio
from holdfast import App

app = App("sqlite:///shop.db")

@app.task(queue="orders", max_attempts=1)
async def charge(order_id: int) -> str:
    if order_id < 0:
        raise ValueError("no such order [red]evil[/red] \\u202e\\x1b[31m\\nsecond line")
    return "charged"

@app.task
async def nap(seconds: float) -> None:
    print("the nap has begun", flush=True)
    await asyncio.sleep(seconds)
"""


def _hear() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _hear_terminal() -> None:
    """Take the terminal on standard input for one's own, as a shell does: Ctrl-C there becomes an interrupt."""
    _hear()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _do_not_hear() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class Cli:
    """A directory with an app in it, and the command line started there."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.app = ("--app", "shop_of_test:app", "--app-dir", ".")
        (directory / "shop_of_test.py").write_text(SHOP, encoding="utf-8")

    def environment(self, more: Mapping[str, str]) -> dict[str, str]:
        ours = {"HOLDFAST_URL", "NO_COLOR", "COLUMNS"}
        kept = {name: value for name, value in os.environ.items() if name not in ours}
        return {**kept, "TERM": "xterm-256color", "HOLDFAST_URL": "sqlite:///shop.db", **more}

    def run(self, *args: str, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command in pipes and require its exit code."""
        done = subprocess.run(
            [*PROGRAM, *args],
            cwd=self.directory,
            env=self.environment(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SOON,
            check=False,
        )
        assert done.returncode == code, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def enqueue(self, task: str, argument: str) -> str:
        return self.run("job", "enqueue", task, *self.app, "--arg", argument).stdout.strip()

    @contextlib.contextmanager
    def started(self, *args: str, hears_interrupts: bool = True) -> Generator[subprocess.Popen[str]]:
        """Start a command that goes on; it is killed at the end if it still runs.

        One that a shell has started in the background does not hear interrupts, and these tests may be started so.
        """
        with subprocess.Popen(
            [*PROGRAM, *args],
            cwd=self.directory,
            env=self.environment({}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=_hear if hears_interrupts else _do_not_hear,  # noqa: PLW1509 - safe between fork and exec
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def in_terminal(
        self,
        *args: str,
        width: int = 100,
        typed: str = "",
        after: str = "[y/N]: ",
        interrupt_at: str = "",
        code: int = 0,
        **environment: str,
    ) -> str:
        """Run a command in a pseudo-terminal, type into it after these words, and return all that it showed.

        With `interrupt_at`, press Ctrl-C when it has shown these words.
        """
        main, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
        with subprocess.Popen(
            [*PROGRAM, *args],
            cwd=self.directory,
            env=self.environment(environment),
            stdin=side,
            stdout=side,
            stderr=side,
            start_new_session=True,
            preexec_fn=_hear_terminal,  # noqa: PLW1509 - safe between fork and exec
        ) as process:
            os.close(side)
            shown = b""
            give_up = time.monotonic() + SOON
            while time.monotonic() < give_up:
                if not select.select([main], [], [], 1.0)[0]:
                    if shown.endswith(b"[y/N]: ^C"):  # pressed before the answer was being read: so press again
                        os.write(main, b"\x03")
                    continue
                try:
                    part = os.read(main, 65536)
                except OSError:  # Linux says so when the other side has closed
                    break
                if not part:
                    break
                shown += part
                if interrupt_at and interrupt_at.encode() in shown:
                    os.write(main, b"\x03")
                    interrupt_at = ""
                if typed and after.encode() in shown:
                    os.write(main, typed.encode())
                    typed = ""
            else:
                process.kill()
            os.close(main)
        text = shown.decode().replace("\r\n", "\n")
        assert process.returncode == code, f"{process.returncode}\n{text}"
        return text


def wait_for_line(process: subprocess.Popen[str], words: str) -> str:
    """Read the program's lines up to one that holds these words."""
    assert process.stdout is not None
    seen = ""
    for text in process.stdout:
        seen += text
        if words in text:
            return seen
    raise AssertionError(f"{words!r} never came; the program said:\n{seen}")
