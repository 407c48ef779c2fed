"""Tables that an earlier version made."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.app.open import open_backend
from holdfast.backends.sqlite.schema import MIGRATIONS
from holdfast.errors import SchemaMismatch
from holdfast.store.values import Retention


async def test_what_was_completed_before_pruning_went_by_age_is_pruned_after_the_upgrade(tmp_path: Path):
    path = tmp_path / "jobs.db"
    with closing(sqlite3.connect(path)) as connection:
        for version in (1, 2):
            connection.executescript(MIGRATIONS[version])
        connection.executescript(
            """
            update holdfast_meta set schema_version = 2, seq = 5;
            insert into holdfast_job (seq, id, lane_id, payload, priority, max_attempts, enqueued_at, turn)
            select value, 'job-' || value, 1, '[]', 0, 5, 1, 1 from json_each('[1, 2, 3, 4, 5]');
            insert into holdfast_completed (seq, fence, worker_id, attempt, started_at, finished_at)
            select seq, 1, 'w', 1, 1, 1 from holdfast_job;
            """
        )
    backend = open_backend(f"sqlite:///{path}")
    with pytest.raises(SchemaMismatch, match="holdfast schema upgrade"):
        await backend.open()
    await backend.schema.install()
    await backend.open()
    assert [await backend.jobs.prune(Retention(), 2) for _ in range(4)] == [2, 2, 1, 0]
    await backend.close()


async def test_the_script_installs_what_install_does(tmp_path: Path):
    path = tmp_path / "jobs.db"
    backend = open_backend(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(backend.schema.script())
    await backend.schema.check()
    await backend.open()
    await backend.close()
