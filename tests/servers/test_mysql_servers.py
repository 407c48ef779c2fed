"""The throw-away servers: where their programs come from, what survives a kill, and that none outlives its process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

import psutil
import pymysql
import pytest
from tests.servers import mysql
from tests.servers.downloads import await_download, start_downloads

from holdfast.errors import ConfigError, StoreUnavailable
from holdfast.testing import debian_packages, mysql_server
from holdfast.testing.debian_packages import CACHE_VARIABLE, cache_folder, cached, unpacked
from holdfast.testing.mysql_server import find_program

PATIENCE = 20.0


def until(condition) -> None:
    give_up_at = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


@pytest.fixture(params=["mariadb", pytest.param("mysql", marks=pytest.mark.slow)])
def flavour(request: pytest.FixtureRequest) -> mysql.Flavour:
    chosen: mysql.Flavour = request.param
    return chosen


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    """A machine without a server, whose cache is empty and, so that root's servers can read it, open to all.

    It is not in `tmp_path`: each run of pytest closes the folder of all runs to other users.
    """
    monkeypatch.setattr(mysql_server, "_PLACES", ())
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with tempfile.TemporaryDirectory(prefix="holdfast-cache-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        monkeypatch.setenv(CACHE_VARIABLE, name)
        yield folder


def test_a_durable_server_has_what_it_acknowledged_after_a_kill_on_the_same_port(flavour: mysql.Flavour):
    with mysql_server.mysql_server(program=mysql.program_of(flavour), is_durable=True) as server:
        port = server.port
        mysql.run(server.url, "create database a", "create table a.b (c int)", "insert into a.b values (7)")
        server.kill()
        with pytest.raises(pymysql.OperationalError):
            mysql.run(server.url, "select 1")
        server.start()

        assert (server.port, mysql.run(server.url, "select c from a.b")) == (port, [(7,)])
        ((flush,),) = mysql.run(server.url, "select @@innodb_flush_log_at_trx_commit")
        assert flush == 1


def test_each_flavour_is_itself(flavour: mysql.Flavour):
    ((version,),) = mysql.run(mysql.server_url(flavour), "select version()")
    assert ("mariadb" in version.lower()) == (flavour == "mariadb")


def test_settings_go_to_the_server_and_no_server_and_no_directory_outlive_the_block():
    with mysql.own_server(max_allowed_packet="2M") as server:
        assert mysql.run(server.url, "select @@max_allowed_packet") == [(2 << 20,)]
        process = server.process
    assert process is not None
    assert process.poll() is not None
    assert not server.folder.exists()


def test_a_kept_directory_outlives_the_block_and_its_command_starts_the_server_again():
    with mysql.own_server() as server:
        mysql.run(server.url, "create database kept")
        server.is_kept = True
    again = subprocess.Popen(["/bin/sh", "-c", f"exec {server.how_to_start}"], stderr=subprocess.DEVNULL, **server.user)
    try:
        until(server.is_ready)
        assert ("kept",) in mysql.run(server.url, "show databases")
    finally:
        again.kill()
        again.wait()
        subprocess.run(["rm", "-rf", str(server.folder)], check=True)


def test_a_server_ends_with_the_process_that_started_it_however_that_ends():
    program = (
        "import sys; from holdfast.testing.mysql_server import mysql_server\n"
        "with mysql_server('mariadb') as server:\n"
        "    print(server.process.pid, server.folder, flush=True); sys.stdin.read()"
    )
    mysql.program_of("mariadb")
    owner = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    assert owner.stdin is not None
    pid, folder = owner.stdout.readline().split()
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    owner.stdin.close()
    owner.stdout.close()

    until(lambda: not _is_running(int(pid)))
    until(lambda: not Path(folder).exists())


def _is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_server_that_cannot_start_says_why_and_leaves_nothing():
    server = mysql_server.mysql_server(program=mysql.program_of("mariadb"), no_such_setting="1")
    with pytest.raises(StoreUnavailable, match="no-such-setting"), server:
        pass
    assert not server.folder.exists()


def test_a_missing_program_is_named_with_the_remedies(bare: Path):
    with pytest.raises(ConfigError, match=r"no mysql server was found .*apt install mysql-server-core.*by its URL"):
        find_program("mysql", downloads=False)


def test_a_program_without_its_files_is_passed_over(bare: Path, monkeypatch: pytest.MonkeyPatch):
    """As in the middle of an installation by the package manager."""
    (bare / "sbin").mkdir()
    (bare / "sbin" / "mariadbd").write_text("#!/bin/sh\necho MariaDB\n")
    (bare / "sbin" / "mariadbd").chmod(0o755)
    monkeypatch.setenv("PATH", f"{bare}/sbin")
    with pytest.raises(ConfigError):
        find_program("mariadb", downloads=False)


def test_a_mirror_that_cannot_be_reached_is_a_reason_and_leaves_the_cache_empty(
    bare: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(debian_packages, "_mirror", lambda: ("http://127.0.0.1:9/nowhere", "bookworm"))
    with pytest.raises(ConfigError, match=r"apt-get has failed: .* name a server that runs already by its URL"):
        find_program("mariadb")
    assert [path.name for path in bare.iterdir()] == ["mariadb-server-core.lock"]


def test_a_cache_that_cannot_be_written_is_named_with_the_variable(bare: Path, monkeypatch: pytest.MonkeyPatch):
    (bare / "file").touch()
    monkeypatch.setenv(CACHE_VARIABLE, str(bare / "file" / "below"))
    with pytest.raises(ConfigError, match=rf"cannot be written .*set \${CACHE_VARIABLE}"):
        unpacked("mariadb-server-core")


def test_a_user_that_is_not_root_has_the_cache_at_home(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    assert cache_folder() == Path("/home/someone/.cache/holdfast")


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_program_is_downloaded_by_one_process_and_found_by_all(bare: Path):
    """The first holds the lock and downloads; those that need the program meanwhile wait for it."""
    start_downloads({"mariadb", "sqlite"})
    until((bare / "mariadb-server-core.lock").exists)
    command = [sys.executable, "-m", "holdfast.testing.debian_packages", "mariadb-server-core"]
    assert subprocess.run(command, check=False).returncode == 0
    assert cached("mariadb-server-core") is None  # it did not wait, and did not download a second time
    program = find_program("mariadb")

    listed = (bare / "mariadb-server-core" / "packages.txt").read_text().splitlines()
    assert any("mariadb-server-core_" in line for line in listed)
    assert all(len(line.split()[0]) == 64 for line in listed)
    with mysql_server.mysql_server(program=program) as server:
        assert mysql.run(server.url, "select 1") == [(1,)]
    await_download("mariadb")
    assert sorted(path.name for path in bare.iterdir()) == ["mariadb-server-core", "mariadb-server-core.lock"]
