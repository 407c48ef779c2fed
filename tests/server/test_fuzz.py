"""Schemathesis against the OpenAPI document: whatever it sends, the answers are those that the document promises.

With all its checks and phases: examples, the edges of every schema, random requests, and sequences of requests that use
what an earlier one has answered, by the links of the document.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.app.conftest import RELAXED
from tests.server.fuzz_hooks import ANSWERS
from tests.server.processes import running_server

from holdfast import App
from holdfast.server.api.routes import OPERATIONS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
EXAMPLES = 12  # of each operation, and as many sequences
FEWER = 6  # with a token, which changes the check of the caller alone
# A schema cannot say that `delay_seconds` excludes `run_at`, or that an argument must fit its task.
BEYOND_A_SCHEMA = "positive_data_acceptance"
ROOT = Path(__file__).parents[2]


def test_every_answer_is_one_that_the_document_promises(url: str, tmp_path: Path):
    fuzz(url, tmp_path, EXAMPLES)


async def test_every_answer_to_a_token_is_one_that_the_document_promises(sqlite_app: App, tmp_path: Path):
    await sqlite_app.opened()
    token = await sqlite_app.tokens.create("fuzz", ["admin"])
    await sqlite_app.close()
    url = f"sqlite:///{tmp_path / 'jobs.db'}?{RELAXED}"

    await asyncio.to_thread(fuzz, url, tmp_path, FEWER, token)


def fuzz(url: str, tmp_path: Path, examples: int, token: str = "") -> None:
    """Send requests to a server; with a token, to one that requires it."""
    answers = tmp_path / "answers"
    program = Path(sys.executable).with_name("schemathesis")
    with running_server(url, *(["--require-token"] if token else [])) as server:
        command: list[str | Path] = [
            *(program, "run", f"{server.url}/v1/openapi.json", "--max-examples", str(examples), "--seed", "1"),
            *("--checks", "all", "--exclude-checks", BEYOND_A_SCHEMA, "--continue-on-failure", "--no-color"),
            *(["--header", f"Authorization: Bearer {token}"] if token else []),
        ]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "SCHEMATHESIS_HOOKS": "tests.server.fuzz_hooks",
                ANSWERS: str(answers),
            },
            capture_output=True,
            text=True,
            check=False,
        )

    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
    assert f"Selected: {len(OPERATIONS)}/{len(OPERATIONS)}" in done.stdout
    phases = {name for name in ("Coverage", "Fuzzing", "Stateful") if f"✅ {name}" in done.stdout}
    assert phases == {"Coverage", "Fuzzing", "Stateful"}, done.stdout
    # What an answer leads to was found: the sequences did not consist of refusals.
    found = {tuple(line.split()) for line in answers.read_text().splitlines()}
    assert found >= {("enqueue_job", "201"), ("show_job", "200"), ("claim_jobs", "200"), ("finish_leases", "200")}
