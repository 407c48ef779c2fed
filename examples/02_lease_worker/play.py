"""Play all three terminals at once: a worker is killed in the middle of its jobs, and another one takes them over."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from lease_worker import FILE, app

PROGRAM = [sys.executable, "-u", str(Path(__file__).with_name("lease_worker.py"))]


def start(*words: str) -> subprocess.Popen[bytes]:
    print(f"$ python lease_worker.py {' '.join(words)}", flush=True)
    return subprocess.Popen([*PROGRAM, *words])  # noqa: S603 - our own program


def main() -> int:
    for ending in ("", "-wal", "-shm"):
        Path(FILE + ending).unlink(missing_ok=True)
    start("create").wait()
    anna = start("worker", "anna")
    watch = start("watch")
    while not any(lease.percent for lease in app.sync.leases()):  # until anna is in the middle of its jobs
        time.sleep(0.1)
    app.sync.close()
    anna.kill()
    anna.wait()
    print("$ kill -9 anna          # its leases last for a while; then they are free", flush=True)
    ben = start("worker", "ben")
    watch.wait()
    ben.terminate()  # gracefully: it would finish or release what it holds
    return ben.wait()


if __name__ == "__main__":
    sys.exit(main())
