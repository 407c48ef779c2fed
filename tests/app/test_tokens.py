"""Access tokens are alike on every store."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import App, ConfigError
from holdfast.app.tokens import KIND
from holdfast.model.scopes import ScopeKind


@pytest.fixture
def app(on_each_store: App) -> App:
    return on_each_store


async def test_a_token_is_verified_by_its_text_alone(app: App):
    text = await app.tokens.create("ci", ["work:mails", "read"])
    found = await app.tokens.verify(text)
    assert found is not None
    assert (found.name, [str(scope) for scope in found.scopes]) == ("ci", ["read", "work:mails"])
    assert found.allows(ScopeKind.WORK, "mails")
    assert not found.allows(ScopeKind.WORK, "other")
    assert not found.allows(ScopeKind.OPERATE)
    assert await app.tokens.list() == [found]


async def test_any_other_text_is_refused(app: App):
    text = await app.tokens.create("ci", ["read"])
    other = await app.tokens.create("other", ["read"])
    wrong = [
        "", "holdfast_", text[:-1], text + "0", text.upper(), f" {text}", text[:-1] + ("0" if text[-1] != "0" else "1"),
        text[:20] + other[20:],  # the id of one, the secret of another
        "holdfast_0000000000000000_" + text[26:], "\N{SNOWMAN}" * len(text),
    ]  # fmt: skip
    assert [await app.tokens.verify(each) for each in wrong] == [None] * len(wrong)


async def test_the_store_does_not_contain_the_secret(app: App):
    text = await app.tokens.create("ci", ["admin"])
    (record,) = await app.backend.records.page(KIND, 10)
    assert len(bytes.fromhex(text.rpartition("_")[2])) == 32
    assert text.rpartition("_")[2] not in repr(record)
    assert record.name == text.split("_")[1]


async def test_a_name_is_used_once_until_it_is_revoked(app: App):
    text = await app.tokens.create("ci", ["read"])
    with pytest.raises(ConfigError, match="revoke it first"):
        await app.tokens.create("ci", ["admin"])
    assert await app.tokens.revoke("ci")
    assert not await app.tokens.revoke("ci")
    assert await app.tokens.verify(text) is None
    again = await app.tokens.create("ci", ["enqueue"])
    assert again != text
    assert await app.tokens.verify(text) is None
    assert await app.tokens.verify(again) is not None


async def test_of_two_concurrent_creations_one_is_refused(app: App):
    made = await asyncio.gather(*(app.tokens.create("ci", ["read"]) for _ in range(4)), return_exceptions=True)
    (text,) = [each for each in made if isinstance(each, str)]
    assert await app.tokens.verify(text) is not None
    assert len([each for each in made if isinstance(each, ConfigError)]) == 3


async def test_a_scope_of_a_newer_version_allows_nothing(app: App):
    text = await app.tokens.create("ci", ["read"])
    (record,) = await app.backend.records.page(KIND, 10)
    newer = record.content.replace('"read"', '"read","fly"')
    assert await app.backend.records.put(KIND, record.name, 1, newer)
    found = await app.tokens.verify(text)
    assert found is not None
    assert [str(scope) for scope in found.scopes] == ["read"]


@pytest.mark.parametrize(("name", "scopes"), [("ci", ["fly"]), ("ci", []), ("c i", ["read"]), ("", ["read"])])
async def test_bad_input_is_refused(app: App, name, scopes):
    with pytest.raises(ConfigError):
        await app.tokens.create(name, scopes)
    assert await app.tokens.list() == []


def test_blocking_calls_do_the_same(file_app: App):
    with file_app.sync as app:
        text = app.tokens.create("ci", ["read"])
        found = app.tokens.verify(text)
        assert [found] == app.tokens.list()
        assert app.tokens.revoke("ci")
