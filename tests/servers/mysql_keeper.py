"""The process that holds the tests' MariaDB or MySQL server: `python -m tests.servers.mysql_keeper FOLDER FLAVOUR`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.servers.keeper import hold

from holdfast.testing.mysql_server import mysql_server


def main() -> None:
    folder = Path(sys.argv[1])
    with mysql_server(sys.argv[2]) as server:  # type: ignore[arg-type]
        hold(folder, server.url)


if __name__ == "__main__":
    main()
