"""URLs of the store, and the servers that are refused."""

from __future__ import annotations

import subprocess
import sys

import pytest

from holdfast.app.open import open_backend
from holdfast.backends.mysql.connecting import require_suitable
from holdfast.backends.mysql.location import MysqlLocation
from holdfast.errors import ConfigError

URL = "mysql://anna:s%40cret@db.example:3307/shop?pool=4&install=never"
HERE = MysqlLocation.parse("mysql://root@localhost/shop")
LOCKS_NOTHING = "locks nothing"


def test_a_url_names_the_database_and_how_to_connect():
    location = MysqlLocation.parse(URL)

    assert (location.host, location.port, location.user, location.password) == ("db.example", 3307, "anna", "s@cret")
    assert (location.database, location.pool, location.install) == ("shop", 4, "never")
    assert location.url == "mysql://anna@db.example:3307/shop?pool=4&install=never"
    assert "cret" not in repr(location)


@pytest.mark.parametrize(
    "url", ["mysql://h", "mysql://u:p@ss@h/db", "mysql://h/db?pool=0", "mysql://h:x/db", "mysql://u:pa#ss@h/db"]
)
def test_a_wrong_url_is_refused_without_its_password(url: str):
    with pytest.raises(ConfigError) as caught:
        open_backend(url)
    assert "p@ss" not in str(caught.value)
    assert "pa#ss" not in str(caught.value)


@pytest.mark.parametrize(("reply_timeout", "seconds"), [("3", 2), ("5.5", 3), ("30", 10), ("600", 10)])
def test_a_wait_for_a_lock_ends_before_its_reply_is_overdue(reply_timeout: str, seconds: int):
    assert MysqlLocation.parse(f"mysql://h/db?reply_timeout={reply_timeout}").lock_wait() == seconds


@pytest.mark.parametrize("reply_timeout", ["0", "2.9", "0.5"])
def test_a_reply_timeout_that_leaves_no_time_for_a_lock_is_refused(reply_timeout: str):
    with pytest.raises(ConfigError, match="reply_timeout=<seconds, at least 3>"):
        MysqlLocation.parse(f"mysql://h/db?reply_timeout={reply_timeout}")


def test_a_driver_in_the_scheme_is_refused():
    with pytest.raises(ConfigError, match="drop \\+pymysql"):
        open_backend("mysql+pymysql://h/db")


@pytest.mark.parametrize(("tls", "host"), [(None, "localhost"), ("off", "db.example")])
def test_a_connection_within_the_machine_or_with_tls_off_is_not_encrypted(tls: str | None, host: str):
    query = "" if tls is None else f"?tls={tls}"
    assert MysqlLocation.parse(f"mysql://{host}/db{query}").encryption is None


def test_another_host_is_spoken_to_by_tls_and_verified_if_asked_for():
    assert MysqlLocation.parse("mysql://db.example/db").encryption is not None
    verified = MysqlLocation.parse("mysql://db.example/db?tls=verify").encryption
    assert verified is not None
    assert verified.check_hostname


@pytest.mark.parametrize(
    ("version", "comment", "reason"),
    [
        ("8.0.11-TiDB-v7.5.0", "TiDB Server", LOCKS_NOTHING),
        ("8.0.33", "Dolt", LOCKS_NOTHING),
        ("8.0.30-Vitess", "", "generates no numbers"),
        ("5.7.44", "MySQL Community Server", "at least 8.0.19"),
        ("8.0.18", "MySQL Community Server", "at least 8.0.19"),
        ("10.5.29-MariaDB", "Debian 11", "at least 10.6"),
    ],
)
def test_a_server_that_only_appears_to_lock_or_is_too_old_is_refused(version: str, comment: str, reason: str):
    with pytest.raises(ConfigError, match=reason):
        require_suitable(HERE, (version, comment, 1), ())


def test_a_server_without_innodb_is_refused():
    with pytest.raises(ConfigError, match="InnoDB"):
        require_suitable(HERE, ("8.0.36", "", 0), ())


@pytest.mark.parametrize(
    ("version", "variable"),
    [("10.11.6-MariaDB", ("wsrep_on", "ON")), ("9.7.4", ("group_replication_single_primary_mode", "OFF"))],
)
def test_a_node_whose_locks_hold_on_it_alone_needs_a_promise_in_the_url(version: str, variable: tuple[str, str]):
    found = version, "", 1
    with pytest.raises(ConfigError, match="galera=one-writer"):
        require_suitable(HERE, found, [variable])

    promised = MysqlLocation.parse("mariadb://root@localhost/shop?galera=one-writer")
    assert require_suitable(promised, found, [variable]) is False


@pytest.mark.parametrize("version", ["8.0.19", "8.4.3", "9.7.4", "10.6.0-MariaDB", "11.8.6-MariaDB"])
def test_a_supported_server_is_accepted(version: str):
    require_suitable(HERE, (version, "", 1), ())


WITHOUT_DRIVER = """
import sys
sys.modules[sys.argv[1]] = None
from holdfast.app.open import open_backend
from holdfast.errors import ConfigError
try:
    open_backend("mysql://db/shop")
except ConfigError as error:
    print(error)
"""


@pytest.mark.parametrize("driver", ["asyncmy", "pymysql"])
def test_a_missing_driver_is_a_config_error_with_the_remedy(driver: str):
    command = [sys.executable, "-c", WITHOUT_DRIVER, driver]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "pip install 'holdfast[mysql]'" in shown
