"""Versions of SQLite that are refused or warned of."""

from __future__ import annotations

import logging
import sqlite3

import pytest

from holdfast import ConfigError
from holdfast.backends.sqlite import versions


@pytest.fixture(autouse=True)
def nothing_was_warned_of(monkeypatch):
    monkeypatch.setattr(versions, "_warned", set[str]())


def test_a_version_that_is_too_old_is_refused_with_the_remedy(monkeypatch):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 37, 2))
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.37.2")

    with pytest.raises(ConfigError, match=r"3\.37\.2 is too old: 3\.38\.0 or newer is needed; use a newer Python"):
        versions.check_version()


def test_a_version_with_a_known_fault_is_warned_of_once_in_a_process(monkeypatch, caplog):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 51, 2))
    with caplog.at_level(logging.WARNING, "holdfast.sqlite"):
        versions.check_version()
        versions.check_version()

    assert len(caplog.records) == 1
    assert "keep backups" in caplog.text


@pytest.mark.parametrize(("version", "faults"), [((3, 38, 0), 1), ((3, 51, 2), 1), ((3, 51, 3), 0), ((4, 0, 0), 0)])
def test_the_faults_of_a_version_are_known(version, faults):
    assert len(versions.known_faults(version)) == faults
