"""Every command that the output suggests can be pasted as it is, from anywhere."""

from __future__ import annotations

import re
import shlex

import click
import pytest
from click.testing import CliRunner
from tests.unit.cli.conftest import APP, park

from holdfast.cli.main import cli
from holdfast.cli.suggested_commands import command, remember_options, runnable
from holdfast.cli.target import StoreTarget

_SUGGESTED = re.compile(r"`(holdfast [^`]+)`|: (holdfast .+)$|^  (holdfast .+)$", re.MULTILINE)


def suggested(text: str) -> list[str]:
    """Return the commands in an output."""
    return [next(filter(None, found)) for found in _SUGGESTED.findall(text)]


def _run(*args: str, code: int = 0) -> str:
    """Run a command as in another shell: without any variable of ours."""
    result = CliRunner().invoke(cli, list(args), env={"HOLDFAST_URL": None, "HOLDFAST_APP": None})
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    place = tmp_path / "else where"
    place.mkdir()
    monkeypatch.chdir(place)


def _paste(line: str, *, code: int = 0) -> str:
    return _run(*shlex.split(line)[1:], code=code)


@pytest.mark.usefixtures("elsewhere")
def test_a_list_that_goes_on_names_the_whole_command(shop):
    for _ in range(6):
        shop.enqueue()
    (line,) = suggested(_run("job", "list", *APP, "--url", shop.url, "--queue", "orders"))
    assert _paste(line).count("orders") == 6


@pytest.mark.usefixtures("elsewhere")
def test_the_next_page_of_a_list_is_a_whole_command(shop):
    ids = {shop.enqueue() for _ in range(5)}
    shown = _run("job", "list", "--state", "ready", "--limit", "3", "--task", "charge", "--url", shop.url)
    (line,) = suggested(shown)
    following = _paste(line)
    assert [sum(job_id in page for job_id in ids) for page in (shown, following)] == [3, 2]


@pytest.mark.usefixtures("elsewhere")
def test_a_missing_store_is_made_by_the_command_in_the_error(tmp_path):
    url = f"sqlite:///{tmp_path}/a file with spaces.db"
    (line,) = suggested(_run("job", "list", "--url", url, code=69))
    _paste(line)
    assert "No jobs." in _run("job", "list", "--url", url)


@pytest.mark.usefixtures("elsewhere")
def test_missing_tables_are_made_by_the_command_in_an_error_of_the_store(tmp_path):
    (tmp_path / "jobs.db").touch()
    url = f"sqlite:///{tmp_path}/jobs.db"
    (line,) = suggested(_run("job", "list", "--url", url, code=78))
    _paste(line)
    assert "No jobs." in _run("job", "list", "--url", url)


@pytest.mark.usefixtures("elsewhere")
def test_what_a_consumer_needs_first_is_a_whole_command(streams):
    (line,) = suggested(_run("consumer", "forget", "billing", "--yes", "--url", streams.url, code=1))
    assert "billing paused" in _paste(line)
    (line,) = suggested(_run("consumer", "retry", "billing", "--stream", "nope", "--url", streams.url, code=1))
    assert "no parked events" in _paste(line)


@pytest.mark.usefixtures("elsewhere")
def test_the_remedies_of_the_doctor_are_whole_commands(streams):
    park(streams)
    streams.enqueue()
    _run("queue", "pause", "orders", "--url", streams.url)
    _run("consumer", "pause", "billing", "--url", streams.url)
    lines = suggested(_run("doctor", "--url", streams.url))
    pasted = [line for line in lines if "worker run" not in line]
    assert len(pasted) >= 3
    for line in pasted:
        _paste(line)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ([], "holdfast job show 01"),
        (["--url", "sqlite:///a b.db"], "holdfast job show 01 --url 'sqlite:///a b.db'"),
        (["--app", "a:b", "--app-dir", "/x y"], "holdfast job show 01 --app a:b --app-dir '/x y'"),
    ],
)
def test_a_command_has_the_options_in_use_once_and_quoted(options, line):
    with click.Context(cli):
        remember_options(options)
        assert command("job", "show", "01") == line
        assert runnable(f"See `{command('job', 'show', '01')}`.") == f"See `{line}`."
        assert runnable("See `holdfast job show 01`.") == f"See `{line}`."


def test_options_from_the_environment_are_not_repeated(shop):
    for _ in range(6):
        shop.enqueue()
    (line,) = suggested(shop.run("job", "list").output)
    assert line == "holdfast job list --state ready"


def test_a_url_with_a_password_is_left_to_the_environment():
    with click.Context(cli) as ctx:
        ctx.set_parameter_source("url", click.core.ParameterSource.COMMANDLINE)
        StoreTarget("postgresql://joe:s3cret@localhost:1/x", None, None)
        assert command("schema", "install") == "holdfast schema install"
        StoreTarget("postgresql://joe@localhost:1/x", None, None)
        assert command("schema", "install") == "holdfast schema install --url postgresql://joe@localhost:1/x"
