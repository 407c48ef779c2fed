"""The audit log is alike on every store."""

from __future__ import annotations

import pytest

from holdfast import App, ConfigError
from holdfast.app import audit


@pytest.fixture
def app(on_each_store: App) -> App:
    return on_each_store


async def test_entries_are_listed_newest_first_a_page_at_a_time(app: App):
    for number in range(5):
        await app.audit.record("ann", "job.retry", f"job {number}", f"{number} of 5", origin="127.0.0.1")
    first = await app.audit.list(2)
    rest = await app.audit.list(before=first[-1].id)
    assert [entry.target for entry in (*first, *rest)] == [f"job {number}" for number in (4, 3, 2, 1, 0)]
    newest = first[0]
    assert (newest.who, newest.action, newest.detail, newest.origin) == ("ann", "job.retry", "4 of 5", "127.0.0.1")
    assert newest.at >= rest[-1].at


async def test_texts_are_cut_and_cleaned(app: App):
    await app.audit.record("a\x00\x1b[31m", "x" * 5000, "t", "d" * 5000)
    (entry,) = await app.audit.list()
    assert entry.who == "a\\x00\\x1b[31m"
    assert (len(entry.action.encode()), len(entry.detail.encode())) == (200, 1000)


async def test_the_log_is_pruned_by_count(app: App, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(audit, "MOST", 3)
    monkeypatch.setattr(audit, "PRUNE_EVERY", 2)
    for number in range(5):
        await app.audit.record("ann", "queue.pause", str(number))
    assert [entry.target for entry in await app.audit.list()] == ["4", "3", "2"]


@pytest.mark.parametrize(
    "bad", [{"limit": 0}, {"limit": 1001}, {"before": "x"}], ids=["no limit", "large limit", "no id"]
)
async def test_bad_pages_are_refused(app: App, bad):
    with pytest.raises(ConfigError):
        await app.audit.list(**bad)


@pytest.mark.parametrize("limit", [2.5, True, "10", None, pytest.param(10**5000, id="enormous")])
async def test_a_limit_that_is_no_whole_number_is_refused(app: App, limit):
    with pytest.raises(ConfigError, match=r"^limit=.* is not a whole number from 1 to 1000$"):
        await app.audit.list(limit)


async def test_an_entry_consists_of_texts(app: App):
    with pytest.raises(ConfigError, match="not a string"):
        await app.audit.record("ann", "job.retry", "job", {"args": [1]})  # type: ignore[arg-type]
    assert await app.audit.list() == []
