"""How the command line finds an app: in the current directory if that is safe, by argument, option or environment."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.system.cli_program import Cli

SHOP = """
from holdfast import App
import prices

app = App("sqlite:///shop.db")

@app.task(executor="process")
def charge(order_id: int) -> int:
    import later
    return later.double(prices.of(order_id))

@app.task
async def bill(order_id: int) -> int:
    return prices.of(order_id)
"""


@pytest.fixture
def cli(tmp_path) -> Cli:
    cli = Cli(tmp_path)
    (tmp_path / "shop_of_test.py").write_text(SHOP, encoding="utf-8")
    (tmp_path / "prices.py").write_text("def of(order_id):\n    return order_id\n", encoding="utf-8")
    (tmp_path / "later.py").write_text("def double(price):\n    return 2 * price\n", encoding="utf-8")
    return cli


def _enqueue_both(cli: Cli, *words: str) -> None:
    for task in ("charge", "bill"):
        for number in range(2):
            cli.run("job", "enqueue", task, *words, "--arg", f"order_id={number}")


def _states(cli: Cli) -> list[str]:
    return [job["state"] for job in json.loads(cli.run("job", "list", "--json").stdout)["jobs"]]


@pytest.mark.parametrize("processes", ["1", "2"])
def test_workers_their_processes_and_job_children_find_the_app_in_the_current_directory(cli, processes):
    _enqueue_both(cli, "--app", "shop_of_test:app")
    cli.run("worker", "run", "shop_of_test:app", "--until-empty", "--processes", processes)
    assert _states(cli) == ["completed"] * 4


@pytest.mark.parametrize("processes", ["1", "2"])
def test_workers_their_processes_and_job_children_find_the_app_from_another_directory(cli, tmp_path, processes):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    cli.directory = elsewhere
    _enqueue_both(cli, "--app", "shop_of_test:app", "--app-dir", "..")
    cli.run("worker", "run", "shop_of_test:app", "--app-dir", "..", "--until-empty", "--processes", processes)
    assert _states(cli) == ["completed"] * 4


def test_the_environment_names_the_app(cli):
    cli.run("job", "enqueue", "bill", "--arg", "order_id=1", HOLDFAST_APP="shop_of_test:app")
    cli.run("worker", "run", "--until-empty", HOLDFAST_APP="shop_of_test:app")
    assert _states(cli) == ["completed"]
    other = cli.run("worker", "run", "prices:app", HOLDFAST_APP="shop_of_test:app", code=78)
    assert "'prices' has no 'app'" in other.stderr


def test_an_app_in_the_environment_is_not_imported_where_only_its_url_is_needed_and_known(cli):
    cli.run("schema", "install")
    cli.run("job", "list", HOLDFAST_APP="no_such_module:app")
    assert "no_such_module" in cli.run("worker", "run", HOLDFAST_APP="no_such_module:app", code=78).stderr


def test_the_installed_script_finds_the_app_in_the_current_directory_too(cli):
    script = Path(sys.executable).with_name("holdfast")
    done = subprocess.run(
        [script, "worker", "run", "shop_of_test:app", "--until-empty"],
        cwd=cli.directory, env=cli.environment({}), capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_directory_that_every_user_can_write_to_is_searched_only_by_request(cli):
    cli.directory.chmod(0o777)
    told = cli.run("worker", "run", "shop_of_test:app", "--until-empty", code=78).stderr
    assert "every user can write to it" in told
    assert "add --app-dir ." in told
    cli.run("worker", "run", "shop_of_test:app", "--until-empty", "--app-dir", ".")


def test_the_safe_path_of_python_is_respected(cli):
    told = cli.run("worker", "run", "shop_of_test:app", "--until-empty", code=78, PYTHONSAFEPATH="1").stderr
    assert "$PYTHONSAFEPATH" in told
    cli.run("worker", "run", "shop_of_test:app", "--until-empty", "--app-dir", ".", PYTHONSAFEPATH="1")


def test_a_chosen_directory_goes_before_the_current_one(cli, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "shop_of_test.py").write_text("raise LookupError('the other one')", encoding="utf-8")
    assert "the other one" in cli.run("worker", "run", "shop_of_test:app", "--app-dir", "other", code=78).stderr


def test_without_an_app_nothing_in_the_current_directory_is_imported(cli):
    for name in ("rich", "click", "psycopg", "asyncio", "msgspec"):
        (cli.directory / f"{name}.py").write_text("raise SystemExit('shadowed')")
    cli.run("schema", "show")


@pytest.mark.parametrize("name", ["queue", "calendar"])
def test_an_app_in_a_file_named_like_a_standard_module_is_refused_with_the_remedy(cli, name):
    (cli.directory / f"{name}.py").write_text(SHOP, encoding="utf-8")
    told = cli.run("worker", "run", f"{name}:app", code=78).stderr
    assert f"{name}.py has the name of a module of Python's standard library: rename it" in told


def test_an_app_in_a_file_named_like_an_installed_module_is_refused_with_the_place_of_that(cli):
    (cli.directory / "rich.py").write_text(SHOP, encoding="utf-8")
    told = " ".join(cli.run("worker", "run", "rich:app", code=78).stderr.split())
    assert "rename one of the two" in told
    assert "rich/__init__.py" in told


def test_a_file_beside_the_app_that_hides_a_standard_module_is_named_if_the_import_fails(cli):
    (cli.directory / "sched.py").write_text("", encoding="utf-8")
    (cli.directory / "orders.py").write_text("import sched\nsched.scheduler()\n", encoding="utf-8")
    told = cli.run("worker", "run", "orders:app", code=78).stderr
    assert "sched.py has the name of a module of Python's standard library: rename it" in told


def test_a_program_named_like_a_standard_module_gets_the_remedy(cli):
    (cli.directory / "queue.py").write_text(SHOP, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "queue.py"],
        cwd=cli.directory, env=cli.environment({}), capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "ImportError: queue.py has the name of a module of Python's standard library: rename it" in done.stderr
