"""What the help, the reference and the code say must be the same."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from tests.unit.cli.conftest import every_command

from holdfast.cli.exit_errors import MEANINGS
from holdfast.cli.main import cli
from holdfast.cli.times import duration
from holdfast.worker.settings import WorkerConfig

REFERENCE = (Path(__file__).parents[3] / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "command"), every_command(), ids=lambda value: " ".join(value) if isinstance(value, tuple) else ""
)
def test_every_command_explains_itself_and_is_in_the_reference(words, command):
    result = CliRunner().invoke(cli, [*words, "--help"])
    assert result.exit_code == 0
    assert command.help
    assert all(option.help for option in command.params if isinstance(option, click.Option))
    assert f"holdfast {' '.join(words)}" in REFERENCE
    for option in command.params:
        if isinstance(option, click.Option):
            assert option.opts[0] in REFERENCE, option.opts


def test_the_exit_codes_are_in_the_help_and_in_the_reference():
    text = CliRunner().invoke(cli, ["--help"]).stdout
    for code in MEANINGS:
        assert re.search(rf"^ *{int(code)}  ", text, re.MULTILINE)
        assert re.search(rf"^\| {int(code)} \|", REFERENCE, re.MULTILINE)


def test_the_defaults_in_the_help_of_a_worker_are_those_of_its_settings():
    text = " ".join(CliRunner().invoke(cli, ["worker", "run", "--help"]).stdout.split())
    defaults = WorkerConfig()
    told = {
        name: re.search(rf"{option} .*?\[default: (\w+)\]", text)
        for name, option in [
            ("concurrency", "--concurrency"),
            ("lease", "--lease"),
            ("poll_interval", "--poll-interval"),
            ("drain_timeout", "--drain-timeout"),
        ]
    }
    for name, match in told.items():
        assert match is not None
        assert duration(match[1]) == getattr(defaults, name)


def test_a_mistyped_command_is_a_matter_of_usage():
    assert CliRunner().invoke(cli, ["jobs", "list"]).exit_code == 2
