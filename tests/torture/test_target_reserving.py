"""One run at a time on a target, and runs in two schemas of a database do not touch each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner
from tests.servers.postgres import drop_schema, own_schema, parts_of

from holdfast import App
from holdfast.cli.main import cli
from holdfast.torture.names import schema_of_runs, sessions_in
from holdfast.torture.target import target_of
from holdfast.torture.target.base import Reserved
from holdfast.torture.target.postgres import PostgresTarget
from holdfast.torture.urls import with_settings


@contextmanager
def schema() -> Iterator[PostgresTarget]:
    with own_schema() as url:
        target = PostgresTarget(url)  # another schema than that of the URL
        try:
            yield target
        finally:
            drop_schema(target.url)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a store that does not exist yet."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/run.db"
        return
    with schema() as target:
        yield target.url


def test_a_second_run_on_the_same_store_is_refused_until_the_first_has_ended(url):
    with target_of(url).reserved():
        with pytest.raises(Reserved, match="wait for its end"), target_of(url).reserved():
            raise AssertionError
        refused = CliRunner().invoke(cli, ["torture", "--url", url])
        assert refused.exit_code == 78
        assert "another torture run uses" in refused.stderr

    with target_of(url).reserved():
        pass


def test_a_run_on_a_store_that_was_refused_or_has_ended_leaves_no_file(tmp_path):
    with target_of(f"sqlite:///{tmp_path}/run.db").reserved():
        assert [file.name for file in tmp_path.iterdir()] == ["run.db-torture-lock"]
    assert list(tmp_path.iterdir()) == []


def test_the_file_that_a_killed_run_has_left_excludes_no_other(tmp_path):
    (tmp_path / "run.db-torture-lock").touch()
    with target_of(f"sqlite:///{tmp_path}/run.db").reserved():
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_the_same_under_another_name(tmp_path):
    (tmp_path / "run.db").touch()
    (tmp_path / "other.db").symlink_to(tmp_path / "run.db")
    with (
        target_of(f"sqlite:///{tmp_path}/run.db").reserved(),
        pytest.raises(Reserved),
        target_of(f"sqlite:///{tmp_path}/other.db").reserved(),
    ):
        raise AssertionError


def test_two_schemas_of_a_database_are_two_places():
    with schema() as one, schema() as other, one.reserved(), other.reserved():
        pass


def end_reservation(target: PostgresTarget) -> None:
    """End the session that excludes other runs, as a restart of the server does."""
    server, _ = parts_of(target.url)
    assert target._reservation is not None
    pid = target._reservation[1]._connection.info.backend_pid  # type: ignore[attr-defined]
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("select pg_terminate_backend(%s, 5000)", [pid])


def test_a_run_whose_reservation_was_lost_takes_it_again_before_it_removes_anything():
    with schema() as target, target.reserved():
        end_reservation(target)

        target.drop()

        with pytest.raises(Reserved), PostgresTarget(target.url).reserved():
            raise AssertionError


def test_a_run_whose_reservation_went_to_another_removes_nothing():
    with schema() as target, target.reserved():
        end_reservation(target)
        with PostgresTarget(target.url).reserved(), pytest.raises(Reserved):
            target.drop()


async def test_sessions_of_a_run_in_another_schema_are_neither_counted_nor_ended():
    with schema() as one, schema() as other:
        workers_url = with_settings(one.url, reply_timeout="5")
        async with App(workers_url):
            assert one.sessions()
            assert one.leftovers().connections == len(one.sessions())
            assert other.sessions() == []


def test_the_longest_schema_leaves_room_for_its_name_among_sessions():
    longest = schema_of_runs("s" * 40)
    assert len(longest) == 48
    assert len(sessions_in(longest)) <= 63
    assert sessions_in(longest) != sessions_in(schema_of_runs("s" * 39 + "t"))
