"""The process that holds the tests' PostgreSQL server: `python -m tests.servers.postgres_keeper FOLDER BINARIES`."""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
from tests.servers.keeper import hold

# Nothing here needs to survive the machine. A test of durability starts a server with other settings.
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "fsync": "off",
    "full_page_writes": "off",
    "jit": "off",
    "shared_buffers": "128MB",
    "max_connections": "300",
    "max_wal_size": "512MB",
    "logging_collector": "off",
}


def server_user() -> dict[str, Any]:
    """PostgreSQL refuses to run as root: then it runs as another user."""
    if os.getuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    return {}


def start(folder: Path, binaries: Path, **settings: str) -> tuple[subprocess.Popen[bytes], str]:
    """Make a cluster in `folder` and start it; return the server process and its URL once it answers."""
    data = folder / "data"
    subprocess.run(["cp", "-a", str(_new_cluster(binaries)), str(data)], check=True)
    return serve(data, binaries, **settings)


@cache
def _new_cluster(binaries: Path) -> Path:
    """Return a cluster that no server has used yet; this process makes one, for copying takes less than `initdb`."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-cluster-"))
    atexit.register(_remove, folder, os.getpid())
    folder.chmod(0o711)
    data = folder / "data"
    data.mkdir(mode=0o700)
    user = server_user()
    if user:
        os.chown(data, user["user"], user["group"])
    options = ("-U", "holdfast", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
    command = [str(binaries / "initdb"), "-D", str(data), *options]
    subprocess.run(command, check=True, cwd="/", stdout=subprocess.DEVNULL, **user)
    return data


def _remove(folder: Path, process: int) -> None:
    if os.getpid() == process:  # and not one that a test has forked
        shutil.rmtree(folder, ignore_errors=True)


def serve(data: Path, binaries: Path, **settings: str) -> tuple[subprocess.Popen[bytes], str]:
    """Start the server on the cluster in `data`; return it and its URL once it answers."""
    port = settings.pop("port", None) or str(_free_port())
    chosen = {**SETTINGS, "port": port, "unix_socket_directories": str(data), **settings}
    options = [part for name, value in chosen.items() for part in ("-c", f"{name}={value}")]
    server = subprocess.Popen([binaries / "postgres", "-D", data, *options], cwd="/", **server_user())
    url = f"postgresql://holdfast@127.0.0.1:{port}/postgres"
    while True:
        try:
            psycopg.connect(url, connect_timeout=2).close()
        except psycopg.OperationalError:
            if server.poll() is not None:
                message = f"the server ended with code {server.returncode}"
                raise RuntimeError(message) from None
            time.sleep(0.02)
        else:
            return server, url


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    folder, binaries = Path(sys.argv[1]), Path(sys.argv[2])
    server, url = start(folder, binaries)

    def end() -> None:
        server.send_signal(signal.SIGQUIT)
        server.wait()

    hold(folder, url, end)


if __name__ == "__main__":
    main()
