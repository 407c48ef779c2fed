"""mypy and pyright report the wrong calls of `tests/typing`, and only those."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CALLS = ROOT / "tests" / "typing" / "calls.py"
MARK = "  # reported"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def _marked() -> set[int]:
    return {number for number, line in enumerate(CALLS.read_text().splitlines(), 1) if line.endswith(MARK)}


def _run(*command: str) -> str:
    found = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env=os.environ | {"MYPYPATH": "src", "PYTHONPATH": "src", "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 1, f"{found.stdout}\n{found.stderr}"  # 1: errors were reported; 2: it could not check
    return found.stdout


def test_mypy_reports_exactly_the_marked_lines():
    settings = ["--config-file=", "--strict", "--follow-imports=silent", "--python-version=3.11"]
    output = _run("mypy", *settings, "--cache-dir=.mypy_cache/typing", str(CALLS))
    reported = {int(line) for line in re.findall(r"^[^:\n]+:(\d+): error:", output, re.MULTILINE)}
    assert reported == _marked(), output


def test_pyright_reports_exactly_the_marked_lines():
    output = _run("pyright", "--outputjson", "--pythonpath", sys.executable, str(CALLS))
    found = [one for one in json.loads(output)["generalDiagnostics"] if one["severity"] == "error"]
    lines = "\n".join(f"{one['range']['start']['line'] + 1}: {one['message']}" for one in found)
    assert {one["range"]["start"]["line"] + 1 for one in found} == _marked(), lines
