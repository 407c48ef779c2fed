"""The dashboard in a real browser: every page in both themes, and what only a browser shows."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from axe_playwright_python.async_playwright import Axe
from docs.pictures.dashboard_shop import Shop
from playwright.async_api import Page, expect
from tests.server.dashboard.browser import browsing

from holdfast.server import asgi
from holdfast.server.dashboard import live
from holdfast.server.dashboard.pages import PAGES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]
SERIOUS = {"serious", "critical"}
FAILED_JOBS = 10_000
MISSING = "/jobs/00000000-0000-7000-8000-000000000000"


@asynccontextmanager
async def served(shop: Shop) -> AsyncIterator[str]:
    """Serve a shop on a free port of the loopback address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(asgi(shop.app), log_level="error", timeout_graceful_shutdown=1))
        running = asyncio.create_task(server.serve([listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await running


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    shop = Shop(f"sqlite:///{tmp_path / 'shop.db'}?synchronous=normal")
    async with shop.app:
        yield shop


async def addresses(shop: Shop) -> list[str]:
    """Return every page, with jobs in several states."""
    plain = [page.path for page in PAGES if "{" not in page.path and page.path != "/consumer"]
    jobs = [(await shop.app.jobs.list(state)).jobs[0] for state in ("failed", "blocked", "running", "completed")]
    lists = [f"/jobs?state={state}" for state in ("ready", "scheduled", "blocked", "failed", "completed", "cancelled")]
    return [
        *plain,
        *lists,
        *(f"/jobs/{job.id}" for job in jobs),
        f"/jobs/{jobs[0].id}?reveal=yes",
        "/events?stream=company-3&reveal=yes",
        "/events?partition=7&position=1&reveal=yes",
        "/consumer?name=billing",
        "/preview?verb=retry&of=all&state=failed",
        "/ask?of=/queues&verb=pause&name=mails",
        "/ask?of=/streams&verb=reset&name=billing&to=beginning",
        MISSING,
    ]


def listen(page: Page) -> list[str]:
    """Return the list in which errors of the console, of scripts and of requests are gathered."""
    heard: list[str] = []
    page.on("console", lambda message: heard.append(message.text) if message.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.on("requestfailed", lambda request: heard.append(request.url) if "/live" not in request.url else None)
    return heard


def serious(results: Any) -> list[tuple[str, str]]:
    return [
        (each["id"], node["html"][:200])
        for each in results.response["violations"]
        if each["impact"] in SERIOUS
        for node in each["nodes"]
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_every_page_is_accessible_and_breaks_no_rule(shop, tmp_path, theme):
    await shop.past(minutes=4)
    await shop.present()
    async with shop.at_work(), served(shop) as address, browsing(tmp_path, theme) as context:
        page = await context.new_page()
        heard = listen(page)
        findings: dict[str, Any] = {}
        for path in await addresses(shop):
            await page.goto(address + path, wait_until="load")
            if path == MISSING:
                assert heard.pop().startswith("Failed to load resource: the server responded with a status of 404")
            found = serious(await Axe().run(page))
            breaches = await page.evaluate("window.breaches")
            is_wide = await page.evaluate("document.documentElement.scrollWidth > innerWidth")
            background = await page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
            is_dark = background == "rgb(15, 16, 18)"
            if found or breaches or heard or is_wide or is_dark != (theme == "dark"):
                findings[path] = (found, breaches, list(heard), is_wide, background)
            heard.clear()

        assert not findings, "\n".join(f"{path}: {finding}" for path, finding in findings.items())


async def test_a_phone_shows_accessible_cards_without_scrolling_sideways(shop, tmp_path):
    await shop.past(minutes=2)
    await shop.present()
    async with shop.at_work(), served(shop) as address, browsing(tmp_path) as context:
        page = await context.new_page()
        await page.set_viewport_size({"width": 390, "height": 844})
        findings: dict[str, Any] = {}
        for path in await addresses(shop):
            await page.goto(address + path, wait_until="load")
            found = serious(await Axe().run(page))
            is_wide = await page.evaluate("document.documentElement.scrollWidth > innerWidth")
            if found or is_wide:
                findings[path] = (found, is_wide)

        assert findings == {}


async def test_live_updates_arrive_pause_and_survive_a_selection(shop, tmp_path):
    async with served(shop) as address, browsing(tmp_path) as context:
        page = await context.new_page()
        heard = listen(page)
        await page.goto(f"{address}/jobs?state=ready")
        await expect(page.get_by_text("No ready jobs")).to_be_visible()

        (first,) = await shop.send.enqueue_many([{"to": "user-1"}])
        await expect(page.locator(f'tr[data-key="{first.id}"]')).to_be_visible(timeout=10_000)

        await page.locator("tbody input[type=checkbox]").check()
        (second,) = await shop.send.enqueue_many([{"to": "user-2"}])
        await expect(page.locator(".tabs a[aria-current] .count")).to_have_text("2", timeout=10_000)
        await expect(page.locator(f'tr[data-key="{second.id}"]')).to_have_count(0)  # rows stay while one is selected
        await page.locator("tbody input[type=checkbox]").uncheck()
        await expect(page.locator(f'tr[data-key="{second.id}"]')).to_be_visible(timeout=10_000)

        await page.get_by_role("button", name="Live").click()
        await expect(page.get_by_role("button", name="Paused")).to_be_visible()
        assert heard == []


async def test_only_a_server_that_stays_away_is_reported(shop, tmp_path, monkeypatch):
    monkeypatch.setattr(live, "_LONGEST", 0.5)
    monkeypatch.setattr(live, "_KEEP_ALIVE", 0.2)
    async with browsing(tmp_path) as context:
        page = await context.new_page()
        async with served(shop) as address:
            await page.goto(f"{address}/jobs?state=ready")
            await page.evaluate(
                "window.alarms = 0;"
                "new MutationObserver(() => { window.alarms += !document.querySelector('#stale').hidden; })"
                ".observe(document.querySelector('#stale'), { attributes: true });"
            )
            await page.wait_for_timeout(6000)  # the stream ends several times
            assert await page.evaluate("window.alarms") == 0
        await expect(page.get_by_text("The server cannot be reached.")).to_be_visible(timeout=10_000)


async def test_keys_lead_to_pages_and_can_be_switched_off(shop, tmp_path):
    async with served(shop) as address, browsing(tmp_path) as context:
        page = await context.new_page()
        await page.goto(address)
        await page.keyboard.press("g")
        await page.keyboard.press("q")
        await page.wait_for_url("**/queues")
        await page.keyboard.press("?")
        await page.get_by_role("button", name="Switch keys off").click()
        await page.wait_for_url("**/queues")
        await page.keyboard.press("?")
        await expect(page.locator("#help")).not_to_be_visible()


async def test_rows_are_chosen_and_jobs_changed_by_keys_unless_one_writes(shop, tmp_path):
    await shop.send.enqueue_many([{"to": "user-13"}] * 3)
    await shop.app.drain("mails")
    async with served(shop) as address, browsing(tmp_path) as context:
        page = await context.new_page()
        await page.goto(f"{address}/jobs?state=failed")
        for key in ("j", "j", "x"):
            await page.keyboard.press(key)
        second = page.locator("tbody tr").nth(1)
        await expect(second.get_by_role("checkbox")).to_be_checked()

        # A new row comes above it: the row keeps the focus, so the keys still mean this one.
        await page.keyboard.press("x")
        (new,) = await shop.send.enqueue_many([{"to": "user-13"}])
        await shop.app.drain("mails")
        await expect(page.locator("tbody tr").first).to_have_attribute("data-key", new.id, timeout=10_000)
        for key in ("k", "j", "x"):
            await page.keyboard.press(key)
        third = page.locator("tbody tr").nth(2)
        await expect(third.get_by_role("checkbox")).to_be_checked()

        await page.keyboard.press("/")
        await page.keyboard.type("rx")
        await expect(page.locator("#q")).to_have_value("rx")
        await expect(page.locator("input[name=id]:checked")).to_have_count(1)
        await page.locator("main").focus()
        await page.keyboard.press("r")
        await page.wait_for_url("**/preview?**verb=retry**")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Retry 1 failed job?")
        await page.get_by_role("button", name="Retry").click()
        await page.wait_for_url("**/jobs?state=failed")

        await page.keyboard.press("j")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/jobs/*-*")
        await page.keyboard.press("r")
        await expect(page.get_by_text("The job is ready again")).to_be_visible()
        await page.keyboard.press("c")
        await page.wait_for_url("**/ask?**")
        await page.get_by_label("Reason").fill("by key")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("The job is cancelled")).to_be_visible()

    states = [len((await shop.app.jobs.list(state)).jobs) for state in ("failed", "ready", "cancelled")]
    assert states == [2, 1, 1]


async def test_jobs_are_found_and_retried_without_scripts(shop, tmp_path):
    await shop.send.enqueue_many([{"to": "user-13"}] * 120)
    await shop.app.drain("mails", 50)
    await shop.charge.options(max_attempts=1).enqueue(7)
    await shop.app.drain("orders")
    async with served(shop) as address, browsing(tmp_path, scripts=False) as context:
        page = await context.new_page()
        await page.goto(address)
        await page.get_by_role("link", name="Jobs", exact=True).click()
        await page.get_by_role("link", name="Failed").click()
        await page.get_by_label("Search jobs").fill("task:send")
        await page.get_by_role("button", name="Search").click()
        await page.get_by_role("button", name="All that match").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Retry 120 failed jobs?")
        await page.get_by_role("button", name="Retry 120 jobs").click()
        await expect(page.get_by_text("The operation has begun")).to_be_visible()
        async with asyncio.timeout(60):
            while not await page.get_by_text("120 retried").count():
                await page.reload()

    assert await shop.app.queues.depth("mails") == 120
    assert len((await shop.app.jobs.list("failed")).jobs) == 1


async def test_ten_thousand_failed_jobs_are_retried_and_a_stale_tab_is_refused(shop, tmp_path):
    await shop.send.enqueue_many([{"to": "user-13"}] * FAILED_JOBS)
    await shop.app.drain("mails", 500)
    job = (await shop.app.jobs.list("failed", limit=1)).jobs[0]
    async with served(shop) as address, browsing(tmp_path) as context:
        stale, page = await context.new_page(), await context.new_page()
        await stale.goto(f"{address}/jobs/{job.id}")
        await stale.get_by_role("button", name="Live").click()  # paused: it shows what was

        await page.goto(f"{address}/jobs?state=failed")
        await page.get_by_role("button", name="All that match").click()
        await expect(page.get_by_role("heading", level=1)).to_contain_text("Retry 10")
        await page.get_by_role("button", name="Retry").click()
        await page.wait_for_url("**/operations")
        await expect(page.get_by_text("10\N{NARROW NO-BREAK SPACE}000 retried")).to_be_visible(timeout=120_000)

        await stale.get_by_role("button", name="Retry").click()
        await expect(stale.get_by_text("has changed since this page was loaded")).to_be_visible()

    assert await shop.app.queues.depth("mails") == FAILED_JOBS
