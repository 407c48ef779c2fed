"""A throw-away server: one process over its own directory, on a free port of the loopback address, gone at the end."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from holdfast.errors import StoreUnavailable

HERE = "127.0.0.1"
_TIMEOUT = 60.0  # seconds; recovery after a crash is part of it
_LOOK = 0.01
_PORTS = 5  # at most: another program may take a free port before the server does
_LAST_LINES = 5
# The guard ends the server and removes its directory when the other end of its standard input is closed, so when this
# process ends in whatever way. Each line that it reads names the server's process, and what to do with the directory.
_GUARD = """
while read -r line; do set -- "$1" $line; done
[ "$2" = ended ] || kill -9 "$2"
[ "$3" = keep ] || rm -rf "$1"
"""


class ThrowAwayServer(ABC):
    """A server over a directory; started by `start`, which may be called again after every end, on the same port."""

    way_to_stop = "orderly stop"
    """What `stop` does, in a few words."""

    def __init__(self, folder: Path, user: Mapping[str, Any] | None = None) -> None:
        """`folder` is removed by `close`; `user` are the arguments of `Popen` for the account of the server."""
        self.folder = folder
        self.timeout = _TIMEOUT
        """Seconds within which a start, or an orderly stop, must end."""
        self.is_kept = False
        """Whether `close` keeps its directory."""
        self.process: subprocess.Popen[bytes] | None = None
        self.port: int = free_port()
        self.user = dict(user or {})
        self._has_started = False
        self._guard = subprocess.Popen(  # noqa: S603 - our own text
            ["/bin/sh", "-c", _GUARD, "guard", str(folder)],
            cwd="/",
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # there may be nothing to kill
            start_new_session=True,  # what a terminal sends is for the command: the guard ends after it
        )

    @property
    @abstractmethod
    def url(self) -> str:
        """Its URL."""

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command that starts it on its port."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Return whether it answers."""

    @property
    def data(self) -> Path:
        """Where its files lie."""
        return self.folder

    @property
    def log(self) -> Path:
        """What it writes while it runs."""
        return self.folder / "server.log"

    @property
    def how_to_start(self) -> str:
        """The command that starts it again, once it was left in order."""
        return shlex.join(self.command())

    def start(self) -> None:
        """Start, and return once it answers, with all data loaded; raises `StoreUnavailable`."""
        ports_left = 1 if self._has_started else _PORTS
        while not self._is_started():
            ports_left -= 1
            if not ports_left:
                raise StoreUnavailable(f"the server did not start; its last words: {self.last_words()}")
            self.port = free_port()
        self._has_started = True

    def last_words(self) -> str:
        """Return the last lines that it wrote."""
        return " | ".join(self.log.read_text(errors="replace").splitlines()[-_LAST_LINES:])

    def _is_started(self) -> bool:
        """Start it; return False if it ended by itself, as one does whose port is taken."""
        with self.log.open("ab") as log:
            self.process = process = subprocess.Popen(  # noqa: S603 - found by ourselves
                self.command(),
                cwd=self.data,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                user=self.user.get("user"),
                group=self.user.get("group"),
                extra_groups=self.user.get("extra_groups"),
            )
        self._inform_guard()
        give_up = time.monotonic() + self.timeout
        while process.poll() is None:
            if self.is_ready():
                return True
            if time.monotonic() > give_up:
                self.kill()
                raise StoreUnavailable(f"the server gave no answer in time; its last words: {self.last_words()}")
            time.sleep(_LOOK)
        self.kill()
        return False

    def kill(self) -> None:
        """Kill it, as a crash does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop it in order; one that does not end is killed."""
        self._end(signal.SIGTERM)

    end = stop

    def freeze(self) -> None:
        """Stop it without an end: connections stay open, and nothing is answered."""
        if self.process is not None:
            self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue after `freeze`."""
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)

    def _end(self, number: signal.Signals) -> None:
        process = self.process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(number)
            process.send_signal(signal.SIGCONT)  # a frozen one ends only by SIGKILL
            try:
                process.wait(self.timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.process = None
        self._inform_guard()

    def _inform_guard(self) -> None:
        pid = "ended" if self.process is None else str(self.process.pid)
        if self._guard.stdin is not None:
            with suppress(BrokenPipeError):  # it was killed: nothing guards the server now
                self._guard.stdin.write(f"{pid} {'keep' if self.is_kept else 'remove'}\n".encode())
                self._guard.stdin.flush()

    def close(self) -> None:
        """Stop it, and remove its directory unless it is to be kept."""
        self.stop() if self.is_kept else self.kill()
        self._inform_guard()
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        self._guard.wait()

    def __enter__(self) -> Self:
        """Start it; a block ends it."""
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


def free_port() -> int:
    """Return a port of the loopback address that is free now."""
    with socket.socket() as probe:
        probe.bind((HERE, 0))
        return int(probe.getsockname()[1])


def run_with(server: ThrowAwayServer, name: str, command: list[str]) -> int:
    """Run a command with $HOLDFAST_URL set to a server, and return its exit code."""
    with server:
        os.write(2, f"A throw-away server: {name} at {server.url}\n".encode())
        return subprocess.run(command, env={**os.environ, "HOLDFAST_URL": server.url}, check=False).returncode  # noqa: S603
