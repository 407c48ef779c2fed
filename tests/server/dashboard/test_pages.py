"""Every page: what it shows, what it escapes, how large it is, and how many statements it takes."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from html.parser import HTMLParser
from itertools import product
from urllib.parse import quote

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from holdfast import App, Event
from holdfast.server import asgi
from holdfast.server.dashboard.assets import asset_path, assets
from holdfast.server.dashboard.live import parts_of
from holdfast.server.dashboard.pages import PAGES
from holdfast.store.values import WorkerHeartbeat

PATHS = [page.path for page in PAGES if "{" not in page.path and page.path != "/consumer"]
MOST_BYTES = 100_000
MOST_STATEMENTS = 30


class Outline(HTMLParser):
    """The elements of a page with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.mark.parametrize("path", PATHS)
async def test_a_page_of_an_empty_store_names_what_to_do(site, path):
    text = await site.get(path)

    assert "<h1>" in text
    assert path in {"/", "/system"} or "<code>" in text or "appear here" in text or 'class="empty"' in text


@pytest.mark.parametrize("path", [*PATHS, "failed", "child", "/jobs?state=failed", "/jobs?state=completed&queue=mails"])
async def test_a_page_is_small_complete_and_cheap(site, statements, path):
    await site.send.enqueue("now")
    await site.app.claim("mails", lease=60)
    failed = await site.failed_job()
    parent = await site.send.options(delay=600).enqueue("later")
    child = await site.send.options(after=[parent]).enqueue("child")
    address = {"failed": f"/jobs/{failed}", "child": f"/jobs/{child.id}"}.get(path, path)
    await site.get(address)  # opens what is opened once
    statements()

    text = await site.get(address)

    asked = statements()
    assert 0 < len(asked) <= MOST_STATEMENTS, asked
    files = sum(len(asset.content) for asset in assets().values())
    assert len(text.encode()) + files <= MOST_BYTES
    outline = Outline(text)
    assert {"main", "nav", "h1", "title"} <= {tag for tag, _ in outline.elements}
    assert not [attributes for _, attributes in outline.elements if "style" in attributes or "onclick" in attributes]
    assert not outline.of("style")
    assert [script["src"] for script in outline.of("script")] == [asset_path("dashboard.js")]
    assert len(outline.of("caption")) == len(outline.of("table"))
    assert all("scope" in header for header in outline.of("th"))


async def test_a_page_stays_small_however_many_queues_workers_leases_and_errors_there_are(site):
    names = ["".join(letters) for letters in product("abcdefgh", repeat=3)]
    await site.send.enqueue_many([{"to": name} for name in names])
    for job in await site.app.claim("mails", 300, lease=600):
        await job.fail(ValueError(f"no mailbox {names.pop()}"))
    await site.app.claim("mails", 200, lease=600)
    heartbeats = [
        WorkerHeartbeat(
            worker_id=f"worker-{name}.12345.abcdef0123456789", host=f"host-{name}", pid=1, queues=("mails",),
            concurrency=10, lease=timedelta(seconds=30), running=0, tasks=("send",),
        )
        for name in names[:150]
    ]  # fmt: skip
    extender = site.app.backend.extender()
    await asyncio.to_thread(lambda: [extender.heartbeat(each) for each in heartbeats])
    extender.close()
    for name in names[:150]:
        await site.send.options(queue=f"queue-of-{name}").enqueue("x")
        await site.app.schedules.add(f"schedule-of-{name}", "send", "30 2 * * *", kwargs={"to": "x"})
    files = sum(len(asset.content) for asset in assets().values())

    sizes = {path: files + len((await site.get(path)).encode()) for path in (*PATHS, "/jobs?state=failed")}

    assert {path: size for path, size in sizes.items() if size > MOST_BYTES} == {}
    seen: list[str] = []
    following: str | None = "/queues"
    while following is not None:
        text = await site.get(following.replace("&amp;", "&"))
        seen += re.findall(r'<tr data-key="([^"]+)"', text)
        found = re.search(r'rel="next" href="([^"]+)"', text)
        following = None if found is None else found[1]
    assert len(seen) == len(set(seen)) == 151


@pytest.mark.parametrize("first", ["-1", "x", "99999", "9" * 5000, "\u0663"])
async def test_a_slice_that_does_not_exist_is_the_first(site, first):
    await site.send.enqueue("x")
    assert "mails" in await site.get(f"/queues?from={first}")


async def test_the_number_of_statements_does_not_depend_on_the_number_of_jobs(site, statements):
    counts: list[list[tuple[str, int]]] = []
    await site.get("/")  # opens what is opened once
    for number in (1, 400):
        await site.send.enqueue_many([{"to": f"user-{each}"} for each in range(number)])
        await site.app.drain("mails", 100)
        await site.send.options(delay=60).enqueue_many([{"to": f"user-{each}"} for each in range(number)])
        statements()
        counts.append([])
        for path in (*PATHS, "/jobs?state=completed", "/jobs?state=scheduled"):
            await site.get(path)
            counts[-1].append((path, len(statements())))

    assert counts[0] == counts[1]


async def test_counting_stops_at_ten_thousand_jobs(site):
    await site.send.enqueue_many([{"to": "x"}] * 10_001)

    text = await site.get("/queues")

    assert "10\N{NARROW NO-BREAK SPACE}000+" in text
    assert "10\N{NARROW NO-BREAK SPACE}001" not in text


async def test_an_error_is_shown_as_text(site):
    await site.failed_job()

    for path in ("/", "/errors", "/jobs?state=failed"):
        text = await site.get(path)
        assert "no mailbox &lt;b&gt;broken&lt;/b&gt;" in text
        assert "<b>broken</b>" not in text


HOSTILE = (
    "<script>alert(1)</script>",
    '" onmouseover=alert(1) x="',
    "' autofocus onfocus=alert(1) '",
    "javascript:alert(1)",
    "<svg onload=alert(1)>",
    "</textarea></pre><img src=x onerror=alert(1)>",
    "{{ 7 * 7 }}{% print(7) %}",
    "<!--/live jobs--><!--live head--><iframe>",
    "\u202e\u2066reversed",
    "\x1b[31mred\x1b[0m",
)


@pytest.mark.parametrize("text", HOSTILE)
async def test_stored_text_and_queries_stay_text(site, text):
    site.role = "admin"
    failing = await site.send.options(order_key=text, limit_key=None, unique_key=text).enqueue(text)
    claimed = await site.app.claim("mails", worker_id="hostile", lease=60)
    await claimed[0].fail(ValueError(text))
    asked = await site.send.options(delay=600).enqueue(text)
    await site.app.jobs.cancel(asked.id, text)
    await site.app.append("companies", stream="s", name="renamed", payload=text)
    quoted = quote(text)
    pages = [
        *PATHS,
        f"/jobs/{failing.id}?reveal=yes",
        f"/jobs/{asked.id}?reveal=yes",
        "/jobs?state=failed",
        "/jobs?state=cancelled",
        "/preview?verb=cancel&of=all&state=ready",
        *(f"/jobs?{name}={quoted}" for name in ("q", "state", "queue", "task", "cursor")),
        f"/jobs/{quoted.replace('/', '')}",
        f"/?window={quoted}",
        f"/consumer?name={quoted}",
        f"/operations?before={quoted}",
        f"/audit?before={quoted}",
        f"/preview?verb={quoted}&of={quoted}&state={quoted}&id={quoted}",
    ]
    site.client.cookies.set("holdfast_notice", quote(f"ok {text}"))

    for page in pages:
        shown = (await site.client.get(page)).text
        outline = Outline(shown)
        assert not {"iframe", "img", "textarea", "object", "embed"} & {tag for tag, _ in outline.elements}, page
        assert all(each.get("src") == asset_path("dashboard.js") for each in outline.of("script")), page
        for tag, attributes in outline.elements:
            assert not [name for name in attributes if name.startswith("on") or name == "autofocus"], (page, tag)
            links = [attributes.get(name) or "" for name in ("href", "src", "action", "formaction")]
            assert not [link for link in links if link.strip().lower().startswith("javascript:")], (page, tag)
        assert "49{" not in shown
        assert not {"\x1b", "\u202e", "\u2066"} & set(shown), page
        assert len(parts_of(shown)) == shown.count("<!--live ")


async def test_the_page_of_a_job_explains_it_and_shows_its_traceback(site):
    job_id = await site.failed_job()

    text = await site.get(f"/jobs/{job_id}")

    assert "has failed at" in text
    assert "Traceback (most recent call last)" in text
    assert "hunter2" not in text
    assert "Hidden: they may contain secrets" in text


async def test_arguments_are_revealed_to_operators_without_their_secrets(site):
    job_id = await site.failed_job()

    site.role = "operate"
    text = await site.get(f"/jobs/{job_id}?reveal=yes")
    assert "broken" in text
    assert "hunter2" not in text
    assert "[redacted]" in text
    assert [(entry.action, entry.target) for entry in await site.app.audit.list()] == [("job.reveal", job_id)]

    site.role = "read"
    assert "broken" not in re.sub("no mailbox[^<]*", "", await site.get(f"/jobs/{job_id}?reveal=yes", 403))


async def test_the_graph_of_a_job_is_drawn_and_listed(site):
    parent = await site.send.options(delay=600).enqueue("later")
    child = await site.send.options(after=[parent]).enqueue("child")

    text = await site.get(f"/jobs/{child.id}")

    assert text.count('class="waits"') == 1
    assert f'href="/jobs/{parent.id}"><rect' in text
    assert "<h2>Parents</h2>" in text
    assert "<h2>Children</h2>" in await site.get(f"/jobs/{parent.id}")


async def test_a_list_is_read_a_page_at_a_time(site):
    await site.send.enqueue_many([{"to": f"user-{number}"} for number in range(60)])

    first = await site.get("/jobs?state=ready")
    following = re.search(r'rel="next" href="([^"]+)"', first)
    assert following is not None
    second = await site.get(following[1].replace("&amp;", "&"))

    of_first, of_second = (re.findall(r'<tr data-key="([^"]+)"', text) for text in (first, second))
    assert (len(of_first), len(of_second)) == (50, 10)
    assert not set(of_first) & set(of_second)


async def test_a_search_that_few_jobs_match_stops_and_goes_on_when_asked(site):
    @site.app.task(queue="rare")
    async def seldom() -> None:
        pass

    await seldom.enqueue()
    await site.app.drain("rare")
    await site.send.enqueue_many([{"to": "x"}] * 2100)
    await site.app.drain("mails", 500)

    first = await site.get("/jobs?state=completed&task=seldom")
    assert "looked at matches" in first
    onward = re.search(r'href="([^"]+)">Keep looking', first)
    assert onward is not None
    assert ">seldom</a>" in await site.get(onward[1].replace("&amp;", "&"))


async def test_a_filter_shows_full_pages_without_gaps(site):
    @site.app.task(queue="other")
    async def other() -> None:
        pass

    for _ in range(60):
        await other.enqueue()
        await site.send.enqueue("x")
    await site.app.drain("other", 10)
    await site.app.drain("mails", 10)

    first = await site.get("/jobs?state=completed&task=other")
    following = re.search(r'rel="next" href="([^"]+)"', first)
    assert following is not None
    second = await site.get(following[1].replace("&amp;", "&"))

    seen = [re.findall(r'<tr data-key="([^"]+)"', text) for text in (first, second)]
    assert [len(ids) for ids in seen] == [50, 10]
    assert len({*seen[0], *seen[1]}) == 60


@pytest.mark.parametrize(
    ("search", "leads_to"),
    [
        ("state:failed queue:mails", "/jobs?state=failed&queue=mails"),
        ("task:send", "/jobs?state=running&task=send"),
    ],
)
async def test_a_search_leads_to_the_list_with_a_filter(site, search, leads_to):
    answer = await site.client.get("/jobs", params={"q": search, "state": "running"})

    assert (answer.status_code, answer.headers["location"]) == (303, leads_to)


async def test_a_search_for_a_short_id_leads_to_the_job(site):
    job_id = await site.failed_job()

    answer = await site.client.get("/jobs", params={"q": f"1.{job_id[-4:]}"})

    assert answer.headers["location"] == f"/jobs/{job_id}"


async def test_a_job_that_does_not_exist_is_a_page_of_404(site):
    text = await site.get("/jobs/01a1ef93-8bdd-7520-8dc0-0df2d0bbabd7", 404)

    assert "<h1>" in text
    assert "01a1ef93" in text


async def test_a_wrong_state_in_the_url_is_a_page_of_422(site):
    assert "is not a state" in await site.get("/jobs?state=lost", 422)


async def test_a_chart_has_a_bar_for_each_minute_with_its_numbers(site):
    await site.failed_job()

    text = await site.get("/")

    chart = text[text.index('class="chart"') : text.index("</figure>")]
    assert chart.count("<title>") == 60
    assert "UTC: 1 failed</title>" in chart


async def test_streams_show_their_partitions_and_parked_events(site):
    app: App = site.app

    @app.consumer("billing", category="companies", max_attempts=1, on_error="park")
    async def bill(event: Event) -> None:
        raise ValueError("the address is incomplete")

    await app.category("companies", partitions=4)
    await app.append("companies", stream="company-1", name="renamed", payload=1)
    node = app.node()
    running = asyncio.create_task(node.run())
    async with asyncio.timeout(20):
        while not any(view.parked for view in await app.consumers.list()):  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    text = await site.get("/streams")
    consumer = await site.get("/consumer?name=billing")
    node.stop()
    await running

    assert len(re.findall('<li class="cell', text)) == 4
    assert "1 parked" in text
    assert "the address is incomplete" in consumer


async def test_leases_show_their_fences_and_expired_ones_as_such(site):
    await site.send.enqueue("x")
    await site.app.claim("mails", lease=timedelta(seconds=60))
    (lease,) = await site.app.leases()

    text = await site.get("/leases")

    assert f'class="right id">{lease.fence}</td>' in text
    assert "expired" not in text


async def test_a_static_file_is_kept_forever_and_an_older_version_is_not_found(site):
    answer = await site.client.get(asset_path("dashboard.css"))
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert answer.headers["content-type"].startswith("text/css")

    assert (await site.client.get("/static/0123/dashboard.css")).status_code == 404


async def test_a_page_below_a_prefix_links_below_it(site):
    outer = Starlette(routes=[Mount("/tools", app=asgi(site.app, authorize=lambda _: "admin"))])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(outer), base_url="http://127.0.0.1") as client:
        text = (await client.get("/tools/jobs")).text

    paths = [each["href"] for each in Outline(text).of("a") if not (each["href"] or "").startswith("#")]
    assert paths
    assert all((path or "").startswith("/tools/") for path in paths)
    assert 'data-prefix="/tools"' in text
