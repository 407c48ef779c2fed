"""What the targets of the Makefile run."""

from __future__ import annotations

import subprocess

from tests.house.sources import ROOT


def test_the_demo_runs_on_the_store_that_its_url_names():
    command = ["make", "--dry-run", "--always-make", "--no-print-directory", "demo", "URL=redis://localhost:6379/0"]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert "holdfast demo --url 'redis://localhost:6379/0'" in printed
