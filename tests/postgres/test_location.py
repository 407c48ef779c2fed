"""URLs: what is ours, what is libpq's, and what nobody may see."""

from __future__ import annotations

import pytest
from psycopg.conninfo import conninfo_to_dict

from holdfast.app.open import open_backend
from holdfast.backends.postgres.location import Location
from holdfast.errors import ConfigError


def test_a_password_is_never_shown():
    for url in ("postgresql://ada:s3cret@db/shop", "postgres://ada@db/shop?password=s3cret&sslpassword=s3cret"):
        location = Location.parse(url)
        assert "s3cret" not in location.url
        assert conninfo_to_dict(location.conninfo).get("password") == "s3cret"
        assert "s3cret" not in repr(open_backend(url).url)
        assert "s3cret" not in repr(location)


def test_the_full_url_leads_to_the_same_place_with_password_and_settings():
    url = "postgresql://ada:s3cret@db/shop?schema=jobs&pool=3&prepare=never&patience=9&sslmode=require"
    location = Location.parse(url)
    assert Location.parse(location.full_url) == location
    assert open_backend(url).full_url == url


def test_parameters_of_libpq_pass_through_and_ours_do_not():
    location = Location.parse("postgresql://db:6543/shop?schema=jobs&sslmode=require&connect_timeout=9")
    settings = conninfo_to_dict(location.conninfo)
    assert location.schema == "jobs"
    assert (settings["sslmode"], settings["connect_timeout"], settings["port"]) == ("require", "9", "6543")
    assert "schema" not in settings


@pytest.mark.parametrize("url", ["postgresql:///shop", "postgres:///shop?schema=jobs", "postgresql:///shop?host=/srv"])
def test_a_url_without_a_host_means_the_local_socket(url):
    location = Location.parse(url)
    settings = conninfo_to_dict(location.conninfo)
    assert (settings["dbname"], settings.get("host")) == ("shop", "/srv" if "host=" in url else None)
    assert location.url == url.replace("postgres:", "postgresql:").replace("=/srv", "=%2Fsrv")


@pytest.mark.parametrize("schema", ["", "Jobs", "a-b", 'x"; drop schema public', "pg_jobs", "a" * 49, "1a", "a%b"])
def test_a_schema_is_a_plain_name(schema):
    from urllib.parse import quote

    with pytest.raises(ConfigError, match="schema="):
        Location.parse(f"postgresql://db/shop?schema={quote(schema)}")


@pytest.mark.parametrize("query", ["pool=0", "pool=many", "prepare=perhaps", "install=maybe"])
def test_a_setting_that_cannot_be_is_refused(query):
    with pytest.raises(ConfigError, match="there are"):
        Location.parse(f"postgresql://db/shop?{query}")


def test_a_parameter_that_libpq_does_not_know_is_refused():
    with pytest.raises(ConfigError, match="must look like"):
        Location.parse("postgresql://db/shop?shema=jobs")


def test_a_url_that_is_none_is_refused_without_its_password():
    with pytest.raises(ConfigError) as refused:
        Location.parse("postgresql://ada:s3cret@[db/shop")
    assert "s3cret" not in str(refused.value)
