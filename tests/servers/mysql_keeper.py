"""The process that holds the tests' MySQL or MariaDB server: `python -m tests.servers.mysql_keeper FOLDER SERVER`."""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pymysql

# Nothing here needs to survive the machine. A test of durability starts a server with other settings.
SETTINGS = {
    "innodb-flush-log-at-trx-commit": "0",
    "innodb-buffer-pool-size": "64M",
    "max-connections": "400",
    "skip-name-resolve": "ON",
}
_OF_MARIADB = {"innodb-log-file-size": "64M", "skip-ssl": ""}  # newer ones would make a certificate at every start
_OF_MYSQL = {"mysqlx": "OFF", "sync-binlog": "0", "innodb-redo-log-capacity": "128M"}


def server_user() -> dict[str, Any]:
    """Return whom the server runs as: not as root."""
    if os.getuid() != 0:
        return {}
    for name in ("mysql", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    return {}


def is_mariadb(server: Path) -> bool:
    """Return whether a program is MariaDB's."""
    version = subprocess.run([server, "--no-defaults", "--version"], capture_output=True, text=True, check=True)
    return "mariadb" in version.stdout.lower()


def start(folder: Path, server: Path, **settings: str) -> tuple[subprocess.Popen[bytes], str]:
    """Make a data folder in `folder` and start a server on it; return the process and its URL once it answers."""
    data = folder / "data"
    data.mkdir(mode=0o700)
    user = server_user()
    if user:
        os.chown(data, user["user"], user["group"])
    if is_mariadb(server):
        install = shutil.which("mariadb-install-db") or "mariadb-install-db"
        options = ("--auth-root-authentication-method=normal", "--skip-test-db", "--innodb-log-file-size=64M")
        command = [install, "--no-defaults", f"--datadir={data}", *options]
    else:
        command = [str(server), "--no-defaults", "--initialize-insecure", f"--datadir={data}"]
    made = subprocess.run(command, check=False, cwd=data, capture_output=True, text=True, **user)
    if made.returncode:
        raise RuntimeError(made.stdout + made.stderr)
    return serve(data, server, **settings)


def serve(data: Path, server: Path, **settings: str) -> tuple[subprocess.Popen[bytes], str]:
    """Start the server on the data folder; return it and its URL once it answers."""
    port = settings.pop("port", None) or str(_free_port())
    own = _OF_MARIADB if is_mariadb(server) else _OF_MYSQL
    given = {name.replace("_", "-"): value for name, value in settings.items()}
    chosen = {**SETTINGS, **own, **given, "port": port, "bind-address": "127.0.0.1"}
    places = {"datadir": data, "socket": data / "socket", "pid-file": data / "pid", "log-error": data / "log"}
    options = [f"--{name}={value}" if value != "" else f"--{name}" for name, value in {**chosen, **places}.items()]
    process = subprocess.Popen([server, "--no-defaults", *options], cwd="/", **server_user())
    while True:
        try:
            pymysql.connect(host="127.0.0.1", port=int(port), user="root", connect_timeout=2).close()
        except pymysql.OperationalError:
            if process.poll() is not None:
                message = f"the server ended with code {process.returncode}:\n{(data / 'log').read_text()[-2000:]}"
                raise RuntimeError(message) from None
            time.sleep(0.02)
        else:
            return process, f"mysql://root@127.0.0.1:{port}/"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    folder, server = Path(sys.argv[1]), Path(sys.argv[2])
    process, url = start(folder, server)
    written = folder / "url.new"
    written.write_text(url)
    written.rename(folder / "url")
    with (folder / "used").open("a") as used:
        fcntl.flock(used, fcntl.LOCK_EX)  # granted when no test process is left
    process.send_signal(signal.SIGKILL)  # nothing in it is kept
    process.wait()
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
