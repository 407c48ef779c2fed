"""What `holdfast doctor` says of a MySQL or MariaDB server."""

from __future__ import annotations

import pytest

from holdfast import App
from holdfast.reports.doctor import examine
from holdfast.reports.doctor_server import examine_server
from holdfast.reports.finding import FindingLevel

GOOD = {
    "binlog_format": "ROW",
    "log_bin": "1",
    "other_engines": "none",
    "read_only": "0",
    "default_transaction_isolation": "REPEATABLE-READ",
    "oldest_transaction": "3",
}


async def test_a_real_server_is_examined(url: str):
    async with App(url) as app:
        findings = {finding.check: finding for finding in await examine(app)}
    assert {"binary log", "engine", "isolation", "oldest transaction", "durability", "version"} <= findings.keys()
    assert findings["engine"].verdict is FindingLevel.OK
    assert findings["durability"].verdict is FindingLevel.WARN  # the tests' server does not flush


def test_good_settings_are_fine():
    assert {finding.verdict for finding in examine_server(GOOD)} == {FindingLevel.OK}


@pytest.mark.parametrize(
    ("setting", "value", "level"),
    [
        ("binlog_format", "STATEMENT", FindingLevel.BAD),
        ("other_engines", "holdfast_job", FindingLevel.BAD),
        ("read_only", "1", FindingLevel.BAD),
        ("default_transaction_isolation", "SERIALIZABLE", FindingLevel.WARN),
        ("oldest_transaction", "4000", FindingLevel.WARN),
    ],
)
def test_a_bad_setting_is_found_with_its_remedy(setting: str, value: str, level: FindingLevel):
    (found,) = [finding for finding in examine_server({**GOOD, setting: value}) if finding.verdict is level]
    assert found.remedy


def test_other_stores_have_none_of_these_facts():
    assert list(examine_server({"fsync": "on"})) == []
