"""Debian's Chromium: found on this machine, or installed if that is possible."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import BrowserContext, async_playwright
from tests.servers.missing import give_up

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
_LOCK = Path(tempfile.gettempdir()) / "holdfast-chromium.lock"
_INSTALL = "apt-get update && apt-get install --yes --no-install-recommends chromium"


def chromium() -> str:
    """Return the path of the browser; ends the test as one that could not run if it cannot be had."""
    with _LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes
        found = shutil.which("chromium")
        if found is None and os.geteuid() == 0 and shutil.which("apt-get") is not None:
            subprocess.run(_INSTALL, shell=True, check=False, capture_output=True, timeout=400)  # noqa: S602 - ours
            found = shutil.which("chromium")
    return found or give_up("chromium", "not installed, and it could not be installed with apt-get as root")


@asynccontextmanager
async def browsing(folder: Path, theme: str = "system", *, scripts: bool = True) -> AsyncIterator[BrowserContext]:
    """Open a browser with a profile of its own, in which every breach of the content security policy is recorded."""
    async with async_playwright() as playwright:
        context = await playwright.chromium.launch_persistent_context(
            folder / "profile",
            executable_path=chromium(),
            args=FLAGS,
            color_scheme="dark" if theme == "dark" else "light",
            viewport={"width": 1280, "height": 900},
            java_script_enabled=scripts,
        )
        await context.add_init_script(
            "window.breaches = [];"
            "addEventListener('securitypolicyviolation', (e) => window.breaches.push(e.violatedDirective));"
        )
        try:
            yield context
        finally:
            await context.close()
