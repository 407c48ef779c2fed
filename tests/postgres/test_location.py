"""URLs: what is ours, what is libpq's, and what nobody may see."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from psycopg.conninfo import conninfo_to_dict

from holdfast.app.open import open_backend
from holdfast.backends.postgres.location import PostgresLocation
from holdfast.errors import ConfigError


def test_a_password_is_never_shown():
    for url in ("postgresql://ada:s3cret@db/shop", "postgres://ada@db/shop?password=s3cret&sslpassword=s3cret"):
        location = PostgresLocation.parse(url)
        assert "s3cret" not in location.url
        assert conninfo_to_dict(location.conninfo).get("password") == "s3cret"
        assert "s3cret" not in repr(open_backend(url).url)
        assert "s3cret" not in repr(location)


def test_the_full_url_leads_to_the_same_place_with_password_and_settings():
    url = "postgresql://ada:s3cret@db/shop?schema=jobs&pool=3&prepare=never&reply_timeout=9&sslmode=require"
    location = PostgresLocation.parse(url)
    assert PostgresLocation.parse(location.full_url) == location
    assert open_backend(url).full_url == url


def test_parameters_of_libpq_pass_through_and_ours_do_not():
    location = PostgresLocation.parse("postgresql://db:6543/shop?schema=jobs&sslmode=require&connect_timeout=9")
    settings = conninfo_to_dict(location.conninfo)
    assert location.schema == "jobs"
    assert (settings["sslmode"], settings["connect_timeout"], settings["port"]) == ("require", "9", "6543")
    assert "schema" not in settings


@pytest.mark.parametrize("url", ["postgresql:///shop", "postgres:///shop?schema=jobs", "postgresql:///shop?host=/srv"])
def test_a_url_without_a_host_means_the_local_socket(url):
    location = PostgresLocation.parse(url)
    settings = conninfo_to_dict(location.conninfo)
    assert (settings["dbname"], settings.get("host")) == ("shop", "/srv" if "host=" in url else None)
    assert location.url == url.replace("postgres:", "postgresql:").replace("=/srv", "=%2Fsrv")


@pytest.mark.parametrize("schema", ["", "Jobs", "a-b", 'x"; drop schema public', "pg_jobs", "a" * 49, "1a", "a%b"])
def test_a_schema_is_a_plain_name(schema):
    with pytest.raises(ConfigError, match="schema="):
        PostgresLocation.parse(f"postgresql://db/shop?schema={quote(schema)}")


@pytest.mark.parametrize("query", ["pool=0", "pool=many", "prepare=perhaps", "install=maybe"])
def test_a_setting_that_cannot_be_is_refused(query):
    with pytest.raises(ConfigError, match="supported: "):
        PostgresLocation.parse(f"postgresql://db/shop?{query}")


def test_a_parameter_that_libpq_does_not_know_is_refused():
    with pytest.raises(ConfigError, match="must look like"):
        PostgresLocation.parse("postgresql://db/shop?shema=jobs")


def test_a_url_that_is_none_is_refused_without_its_password():
    with pytest.raises(ConfigError) as refused:
        PostgresLocation.parse("postgresql://ada:s3cret@[db/shop")
    assert "s3cret" not in str(refused.value)


PARTS = ("ssw0rd", "p@ss", "100%", "sound", "pa/", "pa?", "pa#", "℀", "hunter")
SUSPECT = [
    "postgresql://app:p@ssw0rd@localhost/shop",
    "postgresql://app:p@ssw0rd@localhost",
    "postgresql://app:100%sound@localhost/shop",
    "postgresql://app:100%2sound@localhost/shop",
    "postgresql://app:sound%00@localhost/shop",
    "postgresql://app:pa/ssw0rd@localhost/shop",
    "postgresql://app:pa?ssw0rd@localhost/shop",
    "postgresql://app:pa#ssw0rd@localhost/shop",
    "postgresql://app:12/ssw0rd@localhost/shop",
    "postgresql://app:p@pa/ssw0rd@localhost/shop",
    "postgresql://app:p@pa?ssw0rd@localhost/shop",
    "postgresql://app:p@pa?ssw=0rd@localhost/shop",
    "postgresql://p@ss:hunter2@localhost/shop",
    "postgresql://app:hunter 2@localhost/shop",
    "postgresql://app@localhost/shop?password=hunter#2",
    "postgresql://app@localhost/shop?password=hunter#",
]


@pytest.mark.parametrize("url", SUSPECT)
def test_a_password_that_is_not_percent_encoded_is_refused_with_the_remedy_and_without_it(url):
    with pytest.raises(ConfigError, match=r"percent-encode .*: @ is %40") as refused:
        open_backend(url)
    assert not [part for part in PARTS if part in str(refused.value)]
    assert refused.value.__cause__ is None


@pytest.mark.parametrize(
    "url",
    ["postgresql://app:p℀ssw0rd@localhost/shop", "postgresql://app:[ssw0rd@localhost/shop", "//app:ssw0rd@db/shop"],
)
def test_a_url_that_python_cannot_read_is_refused_without_its_password(url):
    with pytest.raises(ConfigError) as refused:
        open_backend(url)
    assert "ssw0rd" not in str(refused.value)


@pytest.mark.parametrize("password", ["p@ss", "100%safe", "pa/ss", "pa?ss", "pa#ss", "a:b", "ä ö", "[x]", "%40"])
def test_a_percent_encoded_password_arrives_whole_and_is_not_shown(password):
    for url in (
        f"postgresql://app:{quote(password, safe='')}@localhost/shop",
        f"postgresql://app@localhost/shop?password={quote(password, safe='')}",
    ):
        location = PostgresLocation.parse(url)
        assert conninfo_to_dict(location.conninfo)["password"] == password
        assert password not in location.url


@pytest.mark.parametrize(
    "query", ["user=ada@example.org", "application_name=a@b&sslmode=require", "host=/srv&user=a@b"]
)
def test_an_at_sign_in_a_parameter_that_is_known_is_none_of_a_password(query):
    settings = conninfo_to_dict(PostgresLocation.parse(f"postgresql:///shop?{query}").conninfo)
    assert "@" in str(settings.get("user")) + str(settings["application_name"])


def test_what_libpq_says_is_not_shown_if_it_holds_the_password():
    with pytest.raises(ConfigError, match="must look like") as refused:
        PostgresLocation.parse("postgresql://ada:shema@db/shop?shema=jobs")
    assert "shema" not in str(refused.value)
