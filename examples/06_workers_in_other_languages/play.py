"""Start a server and workers in shell and JavaScript, kill one of each in the middle of a job, and see both rescued."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
WITHIN = 40.0  # seconds
LANGUAGES = {"shell": ["sh", "worker.sh"], "javascript": ["node", "worker.mjs"]}
NEEDED = {"shell": ("sh", "curl", "jq"), "javascript": ("node",)}


def post(url: str, path: str, body: Any) -> Any:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url + path, json.dumps(body).encode(), headers)  # noqa: S310 - our own server
    with urllib.request.urlopen(request, timeout=WITHIN) as answer:  # noqa: S310
        return json.load(answer)


def get(url: str, path: str) -> Any:
    with urllib.request.urlopen(url + path, timeout=WITHIN) as answer:  # noqa: S310 - our own server
        return json.load(answer)


def start_server() -> tuple[subprocess.Popen[str], str]:
    """Start the server on a free port; return it and its URL."""
    command = [sys.executable, "-m", "holdfast", "server", "run", "--url", "sqlite:///greetings.db", "--port", "0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)  # noqa: S603
    assert server.stderr is not None  # noqa: S101 - as asked for above
    for line in server.stderr:
        if found := re.search(r"on (http://\S+)/$", line.strip()):
            return server, found[1]
    raise SystemExit("the server did not start")


def start_worker(url: str, language: str, name: str, seconds: float) -> subprocess.Popen[str]:
    environment = {**os.environ, "HOLDFAST": url, "SECONDS_OF_WORK": str(seconds)}
    return subprocess.Popen(  # noqa: S603
        LANGUAGES[language] + [name],
        cwd=HERE,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def play(url: str, language: str, workers: list[subprocess.Popen[str]]) -> bool:
    """Kill a worker of this language in the middle of a job; return whether another one has completed the job once."""
    job_id = post(url, "/v1/jobs", {"task": "greet", "queue": "greetings", "kwargs": {"name": "Ada"}})["id"]
    first = start_worker(url, language, f"{language}-1", 60)
    workers.append(first)
    assert first.stdout is not None  # noqa: S101 - as asked for above
    print(first.stdout.readline().strip())
    os.killpg(first.pid, signal.SIGKILL)
    print(f"{language}-1 is killed")
    second = start_worker(url, language, f"{language}-2", 0)
    workers.append(second)
    end = get(url, f"/v1/jobs/{job_id}/result?wait_seconds=25")
    attempts = [attempt["outcome"] for attempt in get(url, f"/v1/jobs/{job_id}")["attempts"]]
    os.killpg(second.pid, signal.SIGKILL)
    print(f"{end.get('result')} (attempts: {', '.join(attempts)})")
    return end.get("result") == f"Hello, Ada, from {language}-2" and attempts == ["rescued", "completed"]


def main() -> int:
    missing = {language: [each for each in programs if not shutil.which(each)] for language, programs in NEEDED.items()}
    here = [language for language in LANGUAGES if not missing[language]]
    for language in LANGUAGES.keys() - here:
        print(f"{language} is left out: {' and '.join(missing[language])} not found")
    if not here:
        return 1
    begun = time.monotonic()
    server, url = start_server()
    workers: list[subprocess.Popen[str]] = []
    try:
        rescued = [play(url, language, workers) for language in here]
    finally:
        for worker in workers:
            if worker.poll() is None:
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()
        server.terminate()
        server.wait()
    took = time.monotonic() - begun
    print(f"{'Killed and rescued' if all(rescued) else 'Not as expected'}: {', '.join(here)} in {took:.0f} s")
    return 0 if all(rescued) else 1


if __name__ == "__main__":
    raise SystemExit(main())
