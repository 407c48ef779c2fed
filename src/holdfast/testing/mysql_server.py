"""A throw-away MariaDB or MySQL server: on a free port of the loopback address, in its own directory, gone at the end.

`python -m holdfast.testing.mysql_server [mariadb|mysql] COMMAND …` runs a command with $HOLDFAST_URL set to an empty
database on such a server.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import msgspec

from holdfast.errors import ConfigError, StoreUnavailable
from holdfast.testing.debian_packages import cached, unpacked
from holdfast.testing.throw_away_server import HERE, ThrowAwayServer, run_with

Flavour = Literal["mariadb", "mysql"]

PACKAGES: Mapping[str, tuple[str, str | None]] = {
    "mariadb": ("mariadb-server-core", None),
    "mysql": ("mysql-server-core", "sid"),  # no stable release of Debian has MySQL
}
"""The package of each flavour, and the release of Debian that has it; None: that of this machine."""
_PROGRAMS = {"mariadb": ("mariadbd", "mysqld"), "mysql": ("mysqld",)}
_PLACES = ("/usr/sbin", "/usr/local/sbin", "/usr/libexec")
_SHARES = ("mariadb", "mysql")
_SYSTEM_TABLES = ("system_tables", "performance_tables", "system_tables_data")
_SETTINGS = {
    "bind-address": HERE,
    "innodb-buffer-pool-size": "64M",
    "max-connections": "400",
    "max-connect-errors": "1000000",  # `is_ready` connects without a log-in
    "secure-file-priv": "",
}
_OF: Mapping[Flavour, dict[str, str | None]] = {
    # Newer ones make a certificate at every start, which takes seconds.
    "mariadb": {"innodb-log-file-size": "64M", "skip-ssl": None, "skip-name-resolve": None},
    "mysql": {"mysqlx": "OFF", "innodb-redo-log-capacity": "128M"},  # its root is that of the name localhost
}
_NOT_DURABLE = {"innodb-flush-log-at-trx-commit": "0", "sync-binlog": "0"}
_DURABLE = {"innodb-flush-log-at-trx-commit": "1", "sync-binlog": "1"}
_LASTING = {"lower-case-table-names"}  # must be the same when MySQL creates its data, and ever after
_PROTOCOL = 10
_FIRST_BYTES = 5  # of the greeting: its length, a number, the version of the protocol


class MysqlProgram(msgspec.Struct, frozen=True):
    """A server program with its files."""

    flavour: Flavour
    command: tuple[str, ...]
    """The words that run it: the program, after the loader of its tree if that is not the machine's."""
    share: Path
    """Where its messages and, of MariaDB, the statements of its system tables are."""

    @property
    def version(self) -> str:
        """Its name and version."""
        done = subprocess.run([*self.command, "--no-defaults", "--version"], capture_output=True, text=True, check=True)  # noqa: S603
        return done.stdout.strip()


def find_program(*flavours: Flavour, downloads: bool = True) -> MysqlProgram:
    """Return a server program, the first that is found, by default of either flavour; raises `ConfigError`.

    It is one of this machine, one of the cache, or downloaded into the cache.
    """
    wanted: tuple[Flavour, ...] = flavours or ("mariadb", "mysql")
    for flavour in wanted:
        found = _on_this_machine(flavour) or _in(cached(PACKAGES[flavour][0]), flavour)
        if found is not None:
            return found
    reason = "it was not downloaded"
    for flavour in wanted if downloads else ():
        try:
            found = _in(unpacked(*PACKAGES[flavour]), flavour)
        except ConfigError as error:
            reason = str(error)
        else:
            if found is not None:
                return found
    raise ConfigError(
        f"no {' or '.join(wanted)} server was found on this machine, and {reason}: install one "
        f"(apt install {PACKAGES[wanted[0]][0]}), or name a server that runs already by its URL"
    )


def _on_this_machine(flavour: Flavour) -> MysqlProgram | None:
    """Return a program that is there with its files: an installation may be in progress."""
    for name in _PROGRAMS[flavour]:
        found = shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), *_PLACES)))
        if found is not None and (program := _with_files(flavour, Path(found).resolve())) is not None:
            with suppress(subprocess.CalledProcessError):
                if ("mariadb" in program.version.lower()) == (flavour == "mariadb"):
                    return program
    return None


def _in(tree: Path | None, flavour: Flavour) -> MysqlProgram | None:
    """Return the program of an unpacked tree, run by the loader and with the libraries of that tree."""
    if tree is None:
        return None
    name = _PROGRAMS[flavour][0]
    libraries = [*tree.glob("lib/*-linux-*"), *tree.glob("usr/lib/*-linux-*")]
    loader = next((path for folder in libraries for path in folder.glob("ld-linux*")), None)
    if loader is None:
        return None
    return _with_files(
        flavour, tree / "usr/sbin" / name, str(loader), "--library-path", os.pathsep.join(map(str, libraries))
    )


def _with_files(flavour: Flavour, program: Path, *loader: str) -> MysqlProgram | None:
    shares = [program.parents[1] / "share" / name for name in _SHARES]
    found = MysqlProgram(flavour, (*loader, str(program)), next((each for each in shares if _is_whole(each)), Path()))
    if flavour == "mysql":
        is_whole = found.share != Path()
    else:
        is_whole = all(_table_statements(found.share, name) is not None for name in _SYSTEM_TABLES)
    return found if program.exists() and is_whole else None


def _is_whole(share: Path) -> bool:
    return (share / "english/errmsg.sys").exists() or (share / "errmsg-utf8.txt").exists()


def _table_statements(share: Path, name: str) -> Path | None:
    """Return a file of statements; its name was `mysql_…` before MariaDB 11."""
    files = (share / f"{prefix}_{name}.sql" for prefix in _SHARES)
    return next((each for each in files if each.exists()), None)


def _server_user() -> dict[str, Any]:
    """Return the account under which the server runs: not root."""
    if os.getuid() != 0:
        return {}
    for name in ("mysql", "nobody"):
        with suppress(KeyError):
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    return {}


class MysqlServer(ThrowAwayServer):
    """A MariaDB or MySQL server; its user `root` has no password."""

    def __init__(
        self,
        folder: Path,
        program: MysqlProgram,
        *,
        is_durable: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Create the data in `folder`, which is removed by `close`; raises `StoreUnavailable`."""
        super().__init__(folder, _server_user())
        self.program = program
        self._settings: dict[str, str | None] = {
            **_SETTINGS,
            **_OF[program.flavour],
            **(_DURABLE if is_durable else _NOT_DURABLE),
            **(settings or {}),
        }
        folder.chmod(0o711)  # the server may run under another user
        self.data.mkdir(mode=0o700)
        if self.user:
            os.chown(self.data, self.user["user"], self.user["group"])
        try:
            self._initialise()
        except BaseException:
            self.close()
            raise

    @property
    def data(self) -> Path:
        """Where its files lie."""
        return self.folder / "data"

    @property
    def url(self) -> str:
        """The URL of the server; add the name of a database."""
        return f"mysql://root@{HERE}:{self.port}/"

    def command(self) -> list[str]:
        """Return the program with its settings."""
        return self._with(self._settings | {"port": str(self.port)})

    def _with(self, settings: Mapping[str, str | None]) -> list[str]:
        data = str(self.data)
        places = {"datadir": data, "socket": f"{data}/socket", "pid-file": f"{data}/pid", "tmpdir": data}
        messages = {"lc-messages-dir": str(self.program.share)}
        chosen = {**places, **messages, **settings}
        options = [f"--{name}" if value is None else f"--{name}={value}" for name, value in chosen.items()]
        return [*self.program.command, "--no-defaults", *options]

    def _initialise(self) -> None:
        if self.program.flavour == "mysql":
            lasting = {name: text for name, text in self._settings.items() if name in _LASTING}
            command, statements = self._with(lasting | {"initialize-insecure": None}), ""
        else:
            command, statements = self._with(_OF["mariadb"] | {"bootstrap": None}), self._system_tables()
        with self.log.open("wb") as log:
            done = subprocess.run(  # noqa: S603 - found by ourselves
                command, input=statements.encode(), stdout=log, stderr=log, cwd=self.data, check=False, **self.user
            )
        if done.returncode:
            raise StoreUnavailable(f"the data of the server was not created; its last words: {self.last_words()}")

    def _system_tables(self) -> str:
        """Return the statements that `mariadb-install-db` runs: it is a script that needs further programs."""
        found = [_table_statements(self.program.share, name) for name in _SYSTEM_TABLES]
        texts = [path.read_text() for path in found if path is not None]
        return "\n".join(["create database mysql;", "use mysql;", "set @auth_root_socket=NULL;", *texts])

    def is_ready(self) -> bool:
        """Return whether it greets a client."""
        with suppress(OSError), socket.create_connection((HERE, self.port), timeout=2.0) as line:
            greeting = line.makefile("rb").read(_FIRST_BYTES)
            return len(greeting) == _FIRST_BYTES and greeting[-1] == _PROTOCOL
        return False


def mysql_server(
    *flavours: Flavour, program: MysqlProgram | None = None, is_durable: bool = False, **settings: str
) -> MysqlServer:
    """Return a server in a temporary directory for a `with` block, which starts and ends it.

    With `is_durable` it syncs at every commit. `settings` are those of the server, with `_` for `-`. Raises
    `ConfigError` without a program.
    """
    program = program or find_program(*flavours)
    folder = Path(tempfile.mkdtemp(prefix="holdfast-mysql-"))
    named = {name.replace("_", "-"): text for name, text in settings.items()}
    return MysqlServer(folder, program, is_durable=is_durable, settings=named)


def main() -> int:
    """Run the command in the arguments on a durable server, with as much memory as PostgreSQL has in benchmarks."""
    flavours: list[Flavour] = [flavour for flavour in ("mariadb", "mysql") if sys.argv[1:2] == [flavour]]
    program = find_program(*flavours)
    server = mysql_server(program=program, is_durable=True, innodb_buffer_pool_size="512M")
    return run_with(server, program.version, sys.argv[1 + len(flavours) :])


if __name__ == "__main__":
    sys.exit(main())
