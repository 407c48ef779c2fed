"""URLs of SQLite: their settings, and the URL that leads another process to the same place."""

from __future__ import annotations

import pytest

from holdfast.app.open import open_backend
from holdfast.backends.sqlite.location import SqliteLocation
from holdfast.errors import ConfigError


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///jobs.db",
        "sqlite:////var/lib/app/jobs.db?synchronous=normal",
        "sqlite:///50%25%3Foff%23now%20%0A.db?busy_timeout=0.25",
        "sqlite:///größe.db?busy_timeout=120&synchronous=full",
        "sqlite:///not-text-\udcff.db",
    ],
)
def test_the_full_url_leads_to_the_same_place_from_any_directory(tmp_path, monkeypatch, url):
    monkeypatch.chdir(tmp_path)
    here = SqliteLocation.parse(url)
    monkeypatch.chdir("/")
    assert here.full_url is not None
    assert SqliteLocation.parse(here.full_url) == here


def test_a_database_in_memory_has_no_full_url():
    assert open_backend("sqlite://").full_url is None


@pytest.mark.parametrize(("text", "seconds"), [("3", 3.0), ("0.5", 0.5), (".5", 0.5), ("5.", 5.0)])
def test_the_busy_timeout_is_a_number_of_seconds(text, seconds):
    assert SqliteLocation.parse(f"sqlite:///jobs.db?busy_timeout={text}").busy_timeout == seconds


@pytest.mark.parametrize("text", ["", ".", "-1", "1e3", "nan", "inf", "²", "٣", "1.2.3", "9" * 400])
def test_a_busy_timeout_that_is_no_plain_number_is_refused(text):
    with pytest.raises(ConfigError, match="busy_timeout=<seconds>"):
        SqliteLocation.parse(f"sqlite:///jobs.db?busy_timeout={text}")


@pytest.mark.parametrize("url", ["sqlite:///", "sqlite:///?synchronous=normal"])
def test_a_file_without_a_name_is_refused_and_not_taken_for_memory(url):
    with pytest.raises(ConfigError, match=r"names no file.*empty.* sqlite:// .*in memory") as refused:
        SqliteLocation.parse(url)
    assert "sqlite:///jobs.db (in the current directory)" in str(refused.value)


@pytest.mark.parametrize("url", ["sqlite://", "sqlite://?synchronous=normal", "sqlite:///:memory:"])
def test_what_is_asked_for_in_memory_is_in_memory(url):
    assert SqliteLocation.parse(url).path is None


def test_an_empty_url_is_refused_with_the_remedy():
    with pytest.raises(ConfigError, match=r"the URL of the store is empty \(an unset variable\?\): .* leave it out"):
        open_backend("")
