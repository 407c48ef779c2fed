"""Every page as a strict reader of HTML sees it: elements are closed in their order, and may stand where they are."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from tests.server.dashboard.test_pages import PATHS

from holdfast.app.bulk import JobSelection
from holdfast.model.job import JobState

VOID = {"meta", "link", "input", "br", "hr", "img", "rect", "line", "path", "use"}
PHRASES_ONLY = {
    "p",
    "h1",
    "h2",
    "button",
    "a",
    "label",
    "span",
    "strong",
    "b",
    "small",
    "dt",
    "summary",
    "code",
    "time",
}
BLOCKS = {"div", "p", "ul", "ol", "li", "dl", "table", "section", "form", "header", "h1", "h2", "pre", "figure"}
INTERACTIVE = {"a", "button", "select", "summary", "details"}
CHILDREN = {
    "ul": {"li"},
    "table": {"caption", "thead", "tbody"},
    "thead": {"tr"},
    "tbody": {"tr"},
    "tr": {"td", "th"},
    "dl": {"dt", "dd", "div"},
    "select": {"option"},
}


class Strict(HTMLParser):
    """Gathers what is wrong with a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.ids: list[str] = []
        self.labelled: set[str] = set()
        self.feed(text)
        self.close()
        self.wrong += [f"<{tag}> is not closed" for tag in self.open]
        self.wrong += [f"the id {name} occurs twice" for name in set(self.ids) if self.ids.count(name) > 1]
        self.wrong += [f"a label is for {name}, which is not there" for name in self.labelled - set(self.ids)]

    def handle_starttag(self, tag, attrs):
        where = f"line {self.getpos()[0]}: <{tag}>"
        names = [name for name, _ in attrs]
        self.wrong += [f"{where} has {name} twice" for name in set(names) if names.count(name) > 1]
        self.ids += [value for name, value in attrs if name == "id"]
        self.labelled |= {value for name, value in attrs if name == "for"}
        above = self.open[-1] if self.open else ""
        if tag not in CHILDREN.get(above, {tag}):
            self.wrong.append(f"{where} in <{above}>")
        if tag in BLOCKS and PHRASES_ONLY & set(self.open):
            self.wrong.append(f"{where} in {self.open}")
        if tag == "form" and "form" in self.open:
            self.wrong.append(f"{where} in another form")
        if tag in INTERACTIVE - {"summary"} and {"a", "button"} & set(self.open):
            self.wrong.append(f"{where} in {self.open}")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open[-1] != tag:
            self.wrong.append(f"line {self.getpos()[0]}: </{tag}> closes {self.open[-1:]}")
        if tag in self.open:
            while self.open.pop() != tag:
                pass


@pytest.mark.parametrize("role", ["read", "admin"])
async def test_every_page_is_well_formed(site, role):
    failed = await site.failed_job()
    parent = await site.send.options(delay=600).enqueue("later", password="x")  # noqa: S106 - to be redacted
    child = await site.send.options(after=[parent], order_key="k").enqueue("child")
    await site.send.enqueue("now")
    await site.app.claim("mails", lease=60)
    await site.app.schedules.add("nightly", "send", "30 2 * * *", kwargs={"to": "x"})
    await site.app.append("companies", stream="s", name="renamed", payload={"a": 1})
    await site.app.queues.pause("mails")
    await site.app.operations.start("retry", JobSelection(JobState.FAILED), "ada")
    site.role = role
    further = [
        f"/jobs/{failed}?reveal=yes",
        "/events?reveal=yes",
        "/events?position=1&reveal=yes",
        "/ask?of=/queues&verb=pause&name=mails",
        "/preview?verb=retry&of=all&state=failed",
    ]

    wrong = {
        path: found
        for path in [
            *PATHS,
            *(f"/jobs?state={state}" for state in ("ready", "running", "scheduled", "blocked", "failed", "completed")),
            f"/jobs/{failed}",
            f"/jobs/{child.id}",
            "/nowhere",
            *further,
        ]
        if (found := Strict((await site.client.get(path)).text).wrong)
    }

    assert wrong == {}


@pytest.mark.parametrize(
    "text", ["<p><div></div></p>", "<ul><b></b></ul>", "<a><a></a></a>", "<p>", "<i><b></i></b>", "<p id=a id=b></p>"]
)
def test_what_is_wrong_is_found(text):
    assert Strict(text).wrong
