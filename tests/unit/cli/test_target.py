"""Which store and which app a command finds, and what it says when there is none."""

from __future__ import annotations

import os
import sqlite3
import sys
from contextlib import closing

import click
import pytest
from click.testing import CliRunner
from tests.unit.cli.conftest import APP, every_command

from holdfast import App, ConfigError
from holdfast.cli.main import cli

READING = [
    ("job", "list"),
    ("job", "show", "01"),
    ("job", "retry", "01"),
    ("job", "cancel", "01"),
    ("queue", "list"),
    ("queue", "pause", "a"),
    ("queue", "resume", "a"),
    ("lease", "list"),
    ("lease", "reset", "01"),
    ("worker", "list"),
    ("schema", "check"),
    ("schema", "upgrade"),
]

# What is made to break a store never follows a variable that may name one in use.
OWN_STORE = {"torture"}
FOLLOWING = [(words, command) for words, command in every_command() if words[0] not in OWN_STORE]

MORE = {("queue", "limit"): ("--running", "1"), ("task", "limit"): ("--running", "1")}  # one of several is required


def _words(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else ""


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_a_command_that_looks_makes_no_database_and_says_where_it_looked(shop, tmp_path, words):
    result = shop.run(*words, code=69)
    assert f"there is no database at {tmp_path}/jobs.db" in result.stderr
    assert result.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_the_doctor_makes_no_database_either(shop, tmp_path):
    assert "there is no database" in shop.run("doctor", code=1).stdout
    assert list(tmp_path.iterdir()) == []


def test_looking_at_a_database_of_something_else_puts_no_tables_into_it(shop, tmp_path):
    (tmp_path / "jobs.db").touch()
    assert "`holdfast schema install`" in shop.run("job", "list", code=78).stderr
    assert "schema\tbad" in shop.run("doctor", code=1).stdout
    assert "the tables are missing" in shop.run("schema", "check", code=1).stderr


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_looking_at_a_database_of_something_else_changes_nothing_about_it(shop, tmp_path, journal):
    path = tmp_path / "jobs.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"pragma journal_mode = {journal}")
        connection.execute("create table recipe (name text)")
        connection.commit()
    before = path.read_bytes()

    shop.run("job", "list", code=78)
    shop.run("doctor", code=1)
    shop.run("schema", "check", code=1)

    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_database_in_memory_is_refused_since_nobody_else_can_see_it(shop):
    assert "in memory" in shop.run("job", "list", url="sqlite://", code=78).stderr


def test_without_a_url_the_default_lies_in_the_current_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    result = CliRunner().invoke(cli, ["job", "list"])
    assert f"{tmp_path}/holdfast.db" in result.stderr


def test_a_url_given_by_option_goes_before_the_environment(shop, tmp_path):
    shop.run("schema", "install")
    assert f"{tmp_path}/other.db" in shop.run("job", "list", "--url", f"sqlite:///{tmp_path}/other.db", code=69).stderr


def test_the_environment_goes_before_the_apps_own_url_and_says_so(shop):
    result = shop.run("job", "enqueue", "charge", *APP, "--arg", "order_id=7")
    assert "the app's own URL" in result.stderr
    assert len(shop.json("job", "list")["jobs"]) == 1


def test_the_apps_own_url_is_used_when_no_other_is_given(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    (tmp_path / "own_url_app.py").write_text(f"from holdfast import App\napp = App('sqlite:///{tmp_path}/own.db')\n")
    result = CliRunner().invoke(cli, ["job", "list", "--app", "own_url_app:app", "--app-dir", str(tmp_path)])
    assert f"{tmp_path}/own.db" in result.stderr


@pytest.mark.parametrize("url", ["nosuch://x", "jobs.db", "postgresql://[::1", "", "sqlite:///a.db?synchronous=off"])
def test_a_url_that_cannot_be_is_a_matter_of_configuration(shop, url):
    result = shop.run("job", "list", "--url", url, code=78)
    assert "sqlite:///" in result.stderr or "synchronous" in result.stderr


def test_a_password_on_the_command_line_is_warned_of_and_never_repeated(shop):
    result = shop.run("job", "list", "--url", "sqlite://joe:s3cret@host/x", code=78)
    assert "set $HOLDFAST_URL instead" in result.stderr
    assert "s3cret" not in result.output


def test_a_password_in_the_environment_is_not_warned_of_and_never_shown(shop):
    result = shop.run("doctor", url="sqlite://joe:s3cret@host/x", code=78)
    assert "Warning" not in result.stderr
    assert "s3cret" not in result.output


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("tests.unit.cli.sample_app", "module:attribute"),
        ("no_such_module:app", "--app-dir"),
        ("tests.unit.cli.sampel_app:app", "did you mean tests.unit.cli.sample_app?"),
        ("cli.sample_app:app", "neither in"),
        ("tests/unit/cli/sample_app.py:app", "as in tests.unit.cli.sample_app:app"),
        ("sample_app.py", "as in sample_app:app"),
        ("tests.unit.cli.no_such:app", "the module 'tests.unit.cli.no_such'"),
        ("tests.unit.cli.sample_app:ap", "sample_app:app"),
        ("tests.unit.cli.sample_app:number", "has type int, not holdfast.App"),
        ("tests.unit.cli.sample_app:empty", "@app.task"),
    ],
)
def test_an_app_that_cannot_be_found_is_a_matter_of_configuration_with_a_remedy(shop, name, hint):
    for words in (("worker", "run"), ("job", "enqueue", "charge")):
        assert hint in shop.run(*words, "--app", name, code=78).stderr


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("import no_such_thing", "ModuleNotFoundError: No module named 'no_such_thing'"),
        ("1/0", "ZeroDivisionError"),
        ("raise SystemExit(0)", "SystemExit"),
        ("def f(:", "SyntaxError"),
    ],
)
def test_an_app_whose_module_fails_is_told_with_its_place(shop, tmp_path, monkeypatch, source, told):
    monkeypatch.setattr(sys, "path", [*sys.path])
    name = f"broken_{abs(hash(source))}"
    (tmp_path / f"{name}.py").write_text(f"\n{source}\n")
    result = shop.run("worker", "run", "--app", f"{name}:app", "--app-dir", str(tmp_path), code=78)
    assert told in result.stderr
    assert f"{name}.py" in result.stderr
    assert "Traceback" not in result.stderr
    assert "Traceback" in shop.run("worker", "run", "--app", f"{name}:app", "--debug", code=78).stderr


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty current directory, from which nothing stays importable."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def test_a_mistyped_module_is_answered_with_the_modules_of_the_current_directory(shop, here):
    (here / "parcels.py").touch()
    (here / "shop_pkg").mkdir()
    (here / "shop_pkg" / "tasks.py").touch()
    assert "did you mean parcels?" in shop.run("worker", "run", "parcel:app", code=78).stderr
    assert "did you mean shop_pkg.tasks?" in shop.run("worker", "run", "tasks:app", code=78).stderr
    assert "did you mean shop_pkg.tasks?" in shop.run("worker", "run", "shop_pkg.task:app", code=78).stderr


def test_a_directory_of_another_user_is_not_searched_for_the_app(shop, here, monkeypatch):
    (here / "foreign_app.py").write_text("raise SystemExit('imported')")
    os.chown(here, os.getuid(), -1)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    if os.getuid() == 0:  # what belongs to root is trusted
        os.chown(here, 4711, -1)
    result = shop.run("worker", "run", "foreign_app:app", code=78)
    assert "it belongs to another user" in result.stderr
    assert "add --app-dir ." in result.stderr


def test_an_app_is_named_once(shop):
    assert "named twice" in shop.run("worker", "run", "a:app", "--app", "b:app", code=2).stderr


def test_without_an_app_a_worker_says_how_to_name_one(shop):
    assert "$HOLDFAST_APP" in shop.run("worker", "run", code=78).stderr


def test_without_an_app_an_enqueue_says_why_it_needs_one(shop):
    assert "arguments are validated against the task" in shop.run("job", "enqueue", "charge", code=78).stderr


@pytest.mark.parametrize(("words", "command"), every_command(), ids=_words)
def test_every_command_takes_a_url_and_debug_and_but_for_three_an_app(words, command):
    options = {name: parameter for parameter in command.params for name in parameter.opts}
    assert {"--url", "--debug"} <= set(options)
    if words[0] not in OWN_STORE:
        assert options["--url"].envvar == "HOLDFAST_URL"
    if words[0] not in {"demo", "bench", *OWN_STORE}:  # they bring their own apps
        assert {"--app", "--app-dir"} <= set(options)


@pytest.mark.parametrize(("words", "command"), FOLLOWING, ids=_words)
@pytest.mark.parametrize("is_given", [True, False], ids=["--url", "$HOLDFAST_URL"])
def test_every_command_goes_to_the_store_that_the_url_names(tmp_path, monkeypatch, words, command, is_given):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    nowhere, sane = "nowhere://joe:s3cret@host/x", f"sqlite:///{tmp_path}/sane.db"
    monkeypatch.setenv("HOLDFAST_URL", sane if is_given else nowhere)
    arguments = [str(given.name) for given in command.params if isinstance(given, click.Argument)]
    needed = [f"{name[:-1]}-1" for name in arguments if name not in {"app_argument", "positional"}]
    needed = ["01" if name == "id-1" else name for name in needed]
    app = APP if words in {("worker", "run"), ("job", "enqueue"), ("schedule", "add")} else ()
    more = MORE.get(words, ())
    url = ("--url", nowhere) if is_given else ()
    required = [
        text
        for option in command.params
        if isinstance(option, click.Option) and option.required
        for text in (option.opts[0], "end")
    ]

    result = CliRunner().invoke(cli, [*words, *needed, *required, *more, *app, *url])

    assert result.exit_code == 78, result.output
    assert "nowhere:" in result.stderr
    assert "s3cret" not in result.output
    assert list(tmp_path.iterdir()) == []


def test_an_app_leads_elsewhere_only_before_its_store_is_open(tmp_path):
    app = App(f"sqlite:///{tmp_path}/a.db")
    app.use(f"sqlite:///{tmp_path}/b.db")
    assert app.backend.url.endswith("/b.db")
    app.sync.opened()
    try:
        with pytest.raises(ConfigError, match="is open already"):
            app.use(f"sqlite:///{tmp_path}/c.db")
    finally:
        app.sync.close()
        app.portal.close()
