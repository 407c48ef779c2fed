"""`holdfast event` and `holdfast category create`."""

from __future__ import annotations

import json
import shlex

import pytest
from tests.unit.cli.conftest import HOSTILE
from tests.unit.cli.test_hints import suggested


@pytest.fixture
def companies(shop):
    shop.run("schema", "install")
    shop.run("category", "create", "companies", "--partitions", "2")
    return shop


def _append(shop, stream="company-7", name="renamed", *words: str, code=0):
    return shop.run("event", "append", "companies", "--stream", stream, "--name", name, *words, code=code)


def test_a_category_is_created_once_and_says_that_its_partitions_are_fixed(shop):
    shop.run("schema", "install")
    made = shop.run("category", "create", "companies", "--partitions", "3")
    assert made.stdout == "companies created with 3 partitions; their number can never be changed\n"
    assert "nothing was changed" in shop.run("category", "create", "companies", "--partitions", "3").stderr
    assert "cannot be changed" in shop.run("category", "create", "companies", "--partitions", "4", code=78).stderr
    assert [view["partitions"] for view in shop.json("category", "list")["categories"]] == [3]


def test_no_number_of_partitions_is_the_default_of_the_first_append(shop):
    shop.run("schema", "install")
    assert "8 partitions" in shop.run("category", "create", "companies").stdout


def test_an_event_is_appended_with_its_payload_and_headers_and_read_back(companies):
    told = _append(companies, "company-7", "renamed", "--payload", '{"to": "Acme"}', "--header", "by=joe").stdout
    assert "appended: version 1 of company-7 (companies:" in told
    (event,) = companies.json("event", "read", "companies")["events"]
    assert (event["stream"], event["name"], event["version"]) == ("company-7", "renamed", 1)
    assert (event["payload"], event["headers"]) == ({"to": "Acme"}, {"by": "joe"})
    assert event["id"] in told


def test_an_append_expects_a_version_if_told_so(companies):
    _append(companies, "company-7", "founded", "--expected-version", "0")
    told = _append(companies, "company-7", "founded", "--expected-version", "0", code=1).stderr
    assert "is at version 1, not 0" in told


def test_a_repeated_append_with_its_id_appends_nothing(companies):
    words = ("--id", "01a1de74-f8d6-720e-a5d5-53e8b6fe34b7")
    _append(companies, "company-7", "founded", *words)
    assert "was appended before" in _append(companies, "company-7", "founded", *words).stdout
    assert len(companies.json("event", "read", "companies")["events"]) == 1


@pytest.mark.parametrize("words", [("--payload", "Acme"), ("--header", "x"), ("--expected-version", "-1")])
def test_what_cannot_be_appended_is_refused_with_the_remedy(companies, words):
    assert words[0] in _append(companies, "company-7", "founded", *words, code=2).stderr


def test_a_stream_is_read_from_a_version_and_the_next_page_can_be_pasted(companies):
    for number in range(5):
        _append(companies, "company-7", f"step-{number}")
    _append(companies, "company-8", "other")
    read = companies.run("event", "read", "companies", "--stream", "company-7", "--from", "2", "--limit", "2")
    assert [row.split("\t")[4] for row in read.stdout.splitlines()[1:]] == ["step-1", "step-2"]
    (line,) = suggested(read.stderr)
    following = companies.run(*shlex.split(line)[1:])
    assert [row.split("\t")[4] for row in following.stdout.splitlines()[1:]] == ["step-3", "step-4"]


def test_the_pages_of_a_category_have_every_event_once(companies):
    for number in range(7):
        _append(companies, f"company-{number}", "founded")
    words = ["event", "read", "companies", "--limit", "3"]
    seen: list[str] = []
    while True:
        read = companies.run(*words)
        seen += [row.split("\t")[2] for row in read.stdout.splitlines()[1:]]
        lines = suggested(read.stderr)
        if not lines:
            break
        words = [*shlex.split(lines[0])[1:], "--limit", "3"]
    assert sorted(seen) == [f"company-{number}" for number in range(7)]


def test_a_partition_is_read_from_a_position_and_a_category_from_a_time(companies):
    for number in range(6):
        _append(companies, f"company-{number}", "founded")
    heads = companies.json("category", "show", "companies")["heads"]
    one = companies.json("event", "read", "companies", "--partition", "0", "--from", "2")["events"]
    assert [(event["partition_id"], event["position"]) for event in one] == [(0, n) for n in range(2, heads[0] + 1)]
    assert len(companies.json("event", "read", "companies", "--from", "2020-01-01T00:00:00Z")["events"]) == 6
    assert "No events." in companies.run("event", "read", "companies", "--from", "end").stderr
    assert "No events." in companies.run("event", "read", "companies", "--stream", "company-1", "--from", "end").stderr


def test_following_ends_at_the_limit_and_prints_a_line_for_each_event(companies):
    for number in range(3):
        _append(companies, "company-7", f"step-{number}")
    followed = companies.run("event", "read", "companies", "--follow", "--limit", "2")
    assert [row.split("\t")[4] for row in followed.stdout.splitlines()] == ["step-0", "step-1"]
    followed = companies.run("event", "read", "companies", "--follow", "--limit", "3", "--json")
    assert [json.loads(row)["name"] for row in followed.stdout.splitlines()] == ["step-0", "step-1", "step-2"]


def test_hostile_text_is_escaped(companies):
    _append(companies, "company-7", "founded", "--payload", json.dumps({"text": HOSTILE.replace("\0", "")}))
    read = companies.run("event", "read", "companies").stdout
    assert "\x1b" not in read
    assert "\u202e" not in read


@pytest.mark.parametrize("words", [("--from", "soon"), ("--stream", "a", "--partition", "1"), ("--limit", "0")])
def test_what_cannot_be_read_is_a_matter_of_usage(companies, words):
    companies.run("event", "read", "companies", *words, code=2)


def test_an_unknown_category_is_told(companies):
    assert "there is no category 'nope'" in companies.run("event", "read", "nope", code=1).stderr
