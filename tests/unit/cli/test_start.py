"""The command line starts fast: help imports only what it shows."""

from __future__ import annotations

import ast
import resource
import subprocess
import sys
from pathlib import Path

import click
import pytest
from tests.unit.cli.conftest import every_command

import holdfast
from holdfast.cli.main import cli

BOUND = 1.0  # seconds of CPU: about 0.1 on an idle machine, more while others use its caches
_HEAVY = {"psycopg", "asyncio", "rich", "holdfast.app.app", "holdfast.worker", "importlib.metadata"}
_SHOW = """
import atexit, sys
from holdfast.cli.main import main
atexit.register(lambda: print("\\n".join(sorted(sys.modules)), file=sys.stderr))
sys.argv[1:] = {words!r}
main()
"""


def _modules(*words: str) -> set[str]:
    """Return the modules that a command has imported."""
    done = subprocess.run(
        [sys.executable, "-c", _SHOW.format(words=list(words))], capture_output=True, text=True, check=True, timeout=60
    )
    assert "Usage: holdfast" in done.stdout
    return set(done.stderr.split())


def test_the_help_imports_neither_drivers_nor_an_event_loop_nor_rich():
    modules = _modules("--help")
    assert "click" in modules
    assert modules.isdisjoint(_HEAVY)
    assert {name for name in modules if name.startswith("holdfast.")} < {
        "holdfast.cli",
        "holdfast.cli.celery_remedies",
        "holdfast.cli.exit_errors",
        "holdfast.cli.suggested_commands",
        "holdfast.cli.main",
        "holdfast.reports",
        "holdfast.reports.text",
        "holdfast.errors",
        "holdfast.runtime",
        "holdfast.runtime.exit_code",
        "holdfast.torture",
        "holdfast.torture.failure",
        "holdfast.__main__",
    }


@pytest.mark.parametrize("words", [words for words, _ in every_command()], ids=" ".join)
def test_the_help_of_a_command_imports_neither_drivers_nor_the_app(words):
    modules = _modules(*words, "--help")
    assert modules.isdisjoint({"psycopg", "holdfast.app.app", "holdfast.worker.worker", "importlib.metadata"})


@pytest.mark.parametrize("words", [(), ("worker", "run"), ("job", "list"), ("event", "read")], ids=" ".join)
def test_the_help_takes_little_cpu_time(words):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "holdfast", *words, "--help"], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime < BOUND


def test_the_help_says_of_each_command_what_the_command_says_of_itself():
    ctx = click.Context(cli, info_name="holdfast")
    listed = cli.get_help(ctx)
    for name in cli.list_commands(ctx):
        command = cli.get_command(ctx, name)
        assert command is not None
        assert command.name == name
        assert f"  {name} " in listed
        assert command.get_short_help_str(1000) in " ".join(listed.split())


def test_every_exported_name_is_imported_from_where_type_checkers_see_it():
    tree = ast.parse(Path(str(holdfast.__file__)).read_text(encoding="utf-8"))
    seen = {
        alias.name: node.module
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == holdfast._PLACES
    assert set(seen) == set(holdfast.__all__)


def test_a_name_that_is_not_exported_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'nope'"):
        holdfast.nope  # type: ignore[attr-defined]  # noqa: B018
    assert set(holdfast.__all__) <= set(dir(holdfast))
