from __future__ import annotations

import pytest

from holdfast.errors import ConfigError
from holdfast.model.scopes import Scope, ScopeKind, allows, parse_scope, parse_scopes


@pytest.mark.parametrize("text", ["enqueue", "work:*", "work:mails", "read", "operate", "admin"])
def test_a_scope_is_written_as_it_was_read(text):
    assert str(parse_scope(text)) == text


@pytest.mark.parametrize(
    "text", ["", "work", "work:", "work:a b", "work:**", "Read", " read", "read:mails", "root", None, 3]
)
def test_any_other_text_is_refused_with_the_list(text):
    with pytest.raises(ConfigError, match=r"scope|queue name"):
        parse_scope(text)


def test_scopes_are_sorted_and_each_is_there_once():
    assert [str(scope) for scope in parse_scopes(["work:b", "read", "work:a", "read"])] == ["read", "work:a", "work:b"]


@pytest.mark.parametrize(("given", "error"), [([], "allows nothing"), ("read", "a single string")])
def test_a_token_needs_a_list_of_scopes(given, error):
    with pytest.raises(ConfigError, match=error):
        parse_scopes(given)


WANTED = [
    Scope(ScopeKind.ENQUEUE),
    Scope(ScopeKind.WORK, "mails"),
    Scope(ScopeKind.READ),
    Scope(ScopeKind.OPERATE),
    Scope(ScopeKind.ADMIN),
]


@pytest.mark.parametrize(
    ("given", "allowed"),
    [
        ("enqueue", {"enqueue"}),
        ("work:mails", {"work:mails"}),
        ("work:*", {"work:mails"}),
        ("work:other", set()),
        ("read", {"read"}),
        ("operate", {"operate", "read"}),
        ("admin", {"enqueue", "work:mails", "read", "operate", "admin"}),
    ],
)
def test_what_a_scope_includes(given, allowed):
    assert {str(wanted) for wanted in WANTED if allows([parse_scope(given)], wanted)} == allowed


def test_work_on_one_queue_is_not_work_on_all():
    assert not allows([parse_scope("work:mails")], Scope(ScopeKind.WORK, "*"))
