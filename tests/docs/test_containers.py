"""The pages on Docker and Kubernetes: their snippets can be read, their commands exist, their probe works."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from tests.docs.test_documentation import ROOT
from tests.docs.test_howto_examples import fenced
from tests.servers.postgres import own_schema

from holdfast import App
from holdfast.app.run_worker import _BEYOND_DRAIN, WorkerProcess
from holdfast.cli.main import cli
from holdfast.runtime.exit_code import ExitCode

DOCKER, KUBERNETES = "docs/howto/docker.md", "docs/howto/kubernetes.md"
PAGES = (DOCKER, KUBERNETES, "docs/howto/from-celery.md")
SPAN = re.compile(r"`(holdfast [^`]+)`")


def documents(page: str) -> list[Any]:
    return [yaml.safe_load(text) for text in fenced(page, "yaml")]


def kinds() -> dict[str, Any]:
    return {document["kind"]: document for document in documents(KUBERNETES)}


def strings(value: object) -> Iterator[list[str]]:
    """Yield every list of texts in a document."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from strings(inner)
    elif isinstance(value, list):
        if value and all(isinstance(inner, str) for inner in value):
            yield value
        for inner in value:
            yield from strings(inner)


def commands(page: str) -> list[list[str]]:
    """Return the holdfast commands of a page: in YAML, in shells inside it, in console blocks and in the prose."""
    found = [words for document in documents(page) for words in strings(document)]
    found += [yaml.safe_load(line) for line in re.findall(r"^CMD (\[.*\])$", text_of(page), re.MULTILINE)]
    lines = [word for words in found for word in words if word.startswith("holdfast ")]
    lines += [line for block in fenced(page, "console") for line in block.splitlines() if line.startswith("$ ")]
    lines += SPAN.findall(text_of(page))
    found += [shlex.split(line.partition(" | ")[0]) for line in lines if "…" not in line]
    return [words[words.index("holdfast") + 1 :] for words in found if "holdfast" in words]


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_the_page_exists_and_takes_its_options(page: str):
    shown = commands(page)

    assert shown
    for words in shown:
        command: click.Command = cli
        rest = list(words)
        while isinstance(command, click.Group) and rest:
            found = command.get_command(click.Context(command), rest[0])
            assert found is not None, f"holdfast {' '.join(words)}: there is no {rest[0]}"
            command = found
            rest.pop(0)
        if rest:
            command.make_context(words[0], rest, resilient_parsing=False).close()  # raises for an unknown option


def test_the_processes_of_compose_wait_for_the_tables_and_use_one_store():
    (compose,) = documents(DOCKER)
    services = compose["services"]

    assert set(services) == {"database", "tables", "web", "worker"}
    for name in ("web", "worker"):
        assert services[name]["depends_on"] == {"tables": {"condition": "service_completed_successfully"}}
        assert services[name]["environment"] == services["tables"]["environment"]
    assert services["worker"]["init"] is True
    assert set(compose["volumes"]) == {services["database"]["volumes"][0].partition(":")[0]}


def test_containers_are_given_longer_to_end_than_a_worker_may_take():
    app = App("sqlite://")
    app.task(name="nothing")(lambda: None)
    longest = WorkerProcess(app.worker(), None).handlers_end_within + _BEYOND_DRAIN
    (compose,) = documents(DOCKER)
    pod = kinds()["Deployment"]["spec"]["template"]["spec"]

    assert int(compose["services"]["worker"]["stop_grace_period"].removesuffix("s")) > longest
    assert pod["terminationGracePeriodSeconds"] > longest
    for page in (DOCKER, KUBERNETES):
        assert f"{longest - 30:.0f} seconds" in text_of(page), (
            "both pages say how long it takes after the drain timeout"
        )


def test_the_image_is_the_same_everywhere_and_names_its_files():
    images = set(re.findall(r"image: (registry\S+)", text_of(KUBERNETES)))
    (dockerfile,) = fenced(DOCKER, "dockerfile")

    assert len(images) == 1
    for line in dockerfile.splitlines():
        assert re.match(r"(FROM|WORKDIR|COPY|RUN|USER|ENV|CMD) \S", line), line
    assert set(kinds()) == {"Deployment", "CronJob", "Job", "ScaledObject"}


def test_the_exit_codes_of_the_page_are_those_of_a_worker():
    codes = re.findall(r"^\| (\d+) \| .+ \|$", text_of(KUBERNETES), re.MULTILINE)

    assert {int(code) for code in codes} == {
        ExitCode.FINE,
        ExitCode.RELEASED,
        ExitCode.UNAVAILABLE,
        ExitCode.BROKEN,
        ExitCode.STUCK,
        ExitCode.CONFIGURATION,
    }


def probe(folder: Path, host: str) -> int:
    container = kinds()["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    command = container["startupProbe"]["exec"]["command"]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        command,
        env={**os.environ, "PATH": path, "HOSTNAME": host, "HOLDFAST_URL": f"sqlite:///{folder}/shop.db"},
        timeout=50,
        check=False,
    )
    return done.returncode


def test_the_startup_probe_passes_once_a_worker_of_this_host_runs(tmp_path: Path):
    app = App(f"sqlite:///{tmp_path}/shop.db")
    app.sync.opened()
    app.sync.close()
    host = socket.gethostname()
    assert probe(tmp_path, host) == 1, "no worker has run yet"

    worker = (
        "from holdfast import App\napp = App()\n@app.task\ndef nothing() -> None: ...\n"
        "if __name__ == '__main__': raise SystemExit(app.run_worker())\n"
    )
    (tmp_path / "shop.py").write_text(worker, encoding="utf-8")
    environment = {**os.environ, "HOLDFAST_URL": f"sqlite:///{tmp_path}/shop.db"}
    with subprocess.Popen([sys.executable, "shop.py"], cwd=tmp_path, env=environment) as running:
        try:
            while probe(tmp_path, host):
                assert running.poll() is None
            assert probe(tmp_path, "another-pod") == 1
        finally:
            running.terminate()
    assert running.returncode == 0


@pytest.mark.parametrize(
    ("words", "missing", "unreachable"),
    [(("schema", "check"), 1, 69), (("doctor", "--json"), 1, 1), (("worker", "list"), 78, 69)],
)
def test_commands_for_probes_end_with_the_codes_of_the_page(words: tuple[str, ...], missing: int, unreachable: int):
    def code(*words: str, url: str) -> int:
        environment = {**os.environ, "HOLDFAST_URL": url}
        command = [sys.executable, "-m", "holdfast", *words]
        return subprocess.run(command, env=environment, capture_output=True, timeout=50, check=False).returncode

    with own_schema() as schema:
        url = f"{schema.replace('?', '?install=never&')}"
        assert code(*words, url=url) == missing
        assert code("schema", "install", url=url) == 0
        # The server of the tests runs without fsync, which is a finding of the doctor.
        assert code(*words, url=url) == int(words[0] == "doctor")
    assert code(*words, url="postgresql://shop@127.0.0.1:1/shop") == unreachable
