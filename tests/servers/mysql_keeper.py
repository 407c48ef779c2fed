"""The process that holds the tests' MariaDB or MySQL server: `python -m tests.servers.mysql_keeper FOLDER FLAVOUR`."""

from __future__ import annotations

import fcntl
import shutil
import sys
from pathlib import Path

from holdfast.testing.mysql_server import mysql_server


def main() -> None:
    folder = Path(sys.argv[1])
    with mysql_server(sys.argv[2]) as server:  # type: ignore[arg-type]
        written = folder / "url.new"
        written.write_text(server.url)
        written.rename(folder / "url")
        with (folder / "used").open("a") as used:
            fcntl.flock(used, fcntl.LOCK_EX)  # granted when no test process is left
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
