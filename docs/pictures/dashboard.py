"""Take pictures of every page of the dashboard: both themes, and the size of a phone.

`make pictures` writes `build/pictures/dashboard-overview-light.png` and so on; `--to DIR` writes elsewhere. Needs
Debian's chromium and the Python package playwright.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn
from dashboard_shop import Shop
from playwright.async_api import Browser, async_playwright

from holdfast.server import asgi

CHROMIUM = "/usr/bin/chromium"
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
SIZES = {"light": (1440, 900), "dark": (1440, 900), "phone": (390, 844)}


async def pages_of(shop: Shop) -> dict[str, str]:
    """Return the pages by the names of their pictures."""
    failed = (await shop.app.jobs.list("failed", task="charge")).jobs[0]
    blocked = (await shop.app.jobs.list("blocked", task="newsletter")).jobs[0]
    running = (await shop.app.jobs.list("running")).jobs[0]
    return {
        "overview": "/",
        "jobs-failed": "/jobs?state=failed",
        "jobs-running": "/jobs?state=running",
        "jobs-none": "/jobs?state=completed&task=export",
        "job-failed": f"/jobs/{failed.id}?reveal=yes",
        "job-blocked": f"/jobs/{blocked.id}",
        "job-running": f"/jobs/{running.id}",
        "errors": "/errors",
        "queues": "/queues",
        "tasks": "/tasks",
        "workers": "/workers",
        "leases": "/leases",
        "schedules": "/schedules",
        "streams": "/streams",
        "consumer": "/consumer?name=billing",
        "reset": "/ask?of=/streams&verb=reset&name=billing&to=beginning",
        "pause": "/ask?of=/queues&verb=pause&name=orders&back=/queues",
        "events": "/events?category=companies&partition=7&reveal=yes",
        "event": "/events?category=companies&partition=7&position=1&reveal=yes",
        "not-found": "/jobs/00000000-0000-7000-8000-000000000000",
        "operations": "/operations",
        "preview": "/preview?verb=retry&of=all&state=failed",
        "audit": "/audit",
        "system": "/system",
    }


@asynccontextmanager
async def served(shop: Shop) -> AsyncGenerator[str]:
    """Serve the dashboard on a free port of the loopback address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(asgi(shop.app), log_level="warning", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve([listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task


async def take(browser: Browser, address: str, pages: dict[str, str], to: Path) -> None:
    """Write a picture of each page in each theme."""
    for theme, (width, height) in SIZES.items():
        context = await browser.new_context(viewport={"width": width, "height": height}, device_scale_factor=1)
        chosen = "light" if theme == "phone" else theme
        await context.add_cookies([{"name": "holdfast_theme", "value": chosen, "url": address}])
        page = await context.new_page()
        for name, path in pages.items():
            await page.goto(address + path, wait_until="load")
            await page.screenshot(path=to / f"dashboard-{name}-{theme}.png", full_page=True)
        await context.close()


async def main(to: Path) -> None:
    """Fill a store, serve it, and take the pictures."""
    with tempfile.TemporaryDirectory() as folder:
        shop = Shop(f"sqlite:///{folder}/shop.db")
        async with shop.app:
            await shop.past()
            await shop.present()
            async with shop.at_work(), served(shop) as address, async_playwright() as playwright:
                browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
                await take(browser, address, await pages_of(shop), to)
                await browser.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, default=Path("build/pictures"))
    folder = parser.parse_args().to
    folder.mkdir(parents=True, exist_ok=True)
    sys.exit(asyncio.run(main(folder)))
