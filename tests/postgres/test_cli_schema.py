"""A mistyped schema in the URL: it is refused or reported, and never upgraded into being."""

from __future__ import annotations

import asyncio
import json
import logging

import psycopg
import pytest
from click.testing import CliRunner, Result
from tests.servers.postgres import parts_of

from holdfast import App
from holdfast.app.open import open_backend
from holdfast.cli.main import cli
from holdfast.reports.doctor import examine
from holdfast.reports.finding import Finding, FindingLevel

new_schema = pytest.mark.new_schema


def run(url: str, *words: str) -> Result:
    return CliRunner().invoke(cli, [*words], env={"HOLDFAST_URL": url})


def exists(url: str) -> bool:
    server, schema = parts_of(url)
    with psycopg.connect(server) as connection:
        found = connection.execute("select 1 from information_schema.schemata where schema_name = %s", (schema,))
        return found.fetchone() is not None


@new_schema
def test_an_upgrade_does_not_create_a_schema(url: str):
    refused = run(url, "schema", "upgrade")

    assert refused.exit_code == 78
    assert "are missing: check the URL, or run `holdfast schema install`" in " ".join(refused.stderr.split())
    assert not exists(url)


def test_an_upgrade_of_an_installed_schema_is_safe_to_repeat(url: str):
    for _ in range(2):
        assert run(url, "schema", "upgrade").exit_code == 0


@new_schema
async def test_a_program_that_installs_into_a_new_schema_logs_its_name_once(url: str, caplog):
    caplog.set_level(logging.INFO, logger="holdfast.postgres")
    for _ in range(2):  # the second finds the tables
        backend = open_backend(url)
        await backend.open()
        await backend.close()

    (message,) = caplog.messages
    assert f"installed the tables in the new schema {parts_of(url)[1]}; if its name is mistyped" in message


def durability(url: str) -> Finding:
    async def look() -> Finding:
        async with App(url) as app:
            return next(finding for finding in await examine(app) if finding.check == "durability")

    return asyncio.run(look())


def test_a_server_without_fsync_is_a_problem_with_the_setting_to_change(url: str):
    found = durability(url)  # the server of the tests is such a one

    assert found.verdict is FindingLevel.BAD
    assert "fsync is off" in found.text
    assert found.remedy == "Set fsync = on in postgresql.conf, and reload the server."
    report = run(url, "doctor", "--json")
    assert report.exit_code == 1
    assert json.loads(report.stdout)["verdict"] == "bad"


def test_a_server_with_fsync_is_judged_by_its_commits(roomy_server):
    assert durability(roomy_server.url).verdict is FindingLevel.OK
    roomy_server.execute("alter role all set synchronous_commit = off")
    lazy = durability(roomy_server.url)
    assert lazy.verdict is FindingLevel.WARN
    assert "synchronous_commit = on" in (lazy.remedy or "")
