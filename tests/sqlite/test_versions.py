"""Versions of SQLite that are refused, and known faults of others."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path

import pytest

from holdfast import App, ConfigError
from holdfast.backends.sqlite import versions


def test_a_version_that_is_too_old_is_refused_with_the_remedy(monkeypatch):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 37, 2))
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.37.2")

    with pytest.raises(ConfigError, match=r"3\.37\.2 is too old: 3\.38\.0 or newer is needed; use a newer Python"):
        versions.check_version()


async def test_a_known_fault_is_logged_once_per_store_by_the_process_that_installs_its_tables(
    monkeypatch, caplog, tmp_path: Path
):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 51, 2))
    with caplog.at_level(logging.INFO, "holdfast.sqlite"):
        for _ in range(2):  # the second one finds the tables, as every later process does
            async with App(f"sqlite:///{tmp_path}/jobs.db"):
                pass

    (record,) = [record for record in caplog.records if "keep backups" in record.getMessage()]
    assert record.levelno == logging.INFO
    assert record.getMessage().startswith(f"this Python uses SQLite {sqlite3.sqlite_version}: versions 3.7.0 to 3.51.2")


async def test_a_store_in_memory_has_no_log_that_could_be_corrupted(monkeypatch, caplog):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 51, 2))
    with caplog.at_level(logging.INFO, "holdfast.sqlite"):
        async with App("sqlite://"):
            pass

    assert caplog.records == []


@pytest.mark.parametrize(("version", "faults"), [((3, 38, 0), 1), ((3, 51, 2), 1), ((3, 51, 3), 0), ((4, 0, 0), 0)])
def test_the_faults_of_a_version_are_known(version, faults):
    assert len(versions.known_faults(version)) == faults
