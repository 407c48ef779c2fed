"""A PgBouncer in transaction mode before the tests' server: found on the machine, or installed when root."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
from tests.servers.postgres import NoServerError
from tests.servers.postgres_keeper import server_user

_SETTINGS = """
[databases]
* = host={host} port={port} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 5
"""


def _find() -> str:
    places = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])
    found = shutil.which("pgbouncer", path=places)
    if found is None and os.getuid() == 0 and shutil.which("apt-get"):
        command = ["apt-get", "install", "--yes", "--no-install-recommends", "pgbouncer"]
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(command, check=False, capture_output=True, env=environment)
        found = shutil.which("pgbouncer", path=places)
    if found is None:
        message = "no PgBouncer: install it (apt install pgbouncer)"
        raise NoServerError(message)
    return found


@contextmanager
def pooled(url: str, folder: Path) -> Iterator[str]:
    """Return the URL of a pooler before the server of `url`; five server sessions for all who connect."""
    program, parts = _find(), urlsplit(url)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        listen = probe.getsockname()[1]
    settings = folder / "pgbouncer.ini"
    settings.write_text(
        _SETTINGS.format(host=parts.hostname, port=parts.port, user=parts.username or "", listen=listen)
    )
    pooled_url = urlunsplit(parts._replace(netloc=f"{parts.username}@127.0.0.1:{listen}"))
    with settings.open() as readable:  # it refuses to run as root, and another user may not enter this folder
        command = [program, "--quiet", f"/dev/fd/{readable.fileno()}"]
        process = subprocess.Popen(command, pass_fds=[readable.fileno()], cwd="/", **server_user())
    try:
        _await_answer(process, pooled_url.partition("?")[0])
        yield pooled_url
    finally:
        process.terminate()
        process.wait()


def _await_answer(process: subprocess.Popen[bytes], url: str) -> None:
    while True:
        try:
            psycopg.connect(url, connect_timeout=2).close()
        except psycopg.OperationalError:
            if process.poll() is not None:
                message = f"PgBouncer ended with code {process.returncode}"
                raise NoServerError(message) from None
            time.sleep(0.02)
        else:
            return
