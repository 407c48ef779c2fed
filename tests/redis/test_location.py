"""URLs of stores on Redis."""

from __future__ import annotations

import pytest

from holdfast.backends.redis.location import RedisLocation
from holdfast.errors import ConfigError


@pytest.mark.parametrize(
    ("url", "host", "port", "db", "tls"),
    [
        ("redis://", "localhost", 6379, 0, False),
        ("redis://cache:6380/2", "cache", 6380, 2, False),
        ("valkey://cache/3", "cache", 6379, 3, False),
        ("rediss://cache:6390?db=1", "cache", 6390, 1, True),
        ("valkeys://cache", "cache", 6379, 0, True),
    ],
)
def test_a_url_names_a_server_and_a_database(url: str, host: str, port: int, db: int, tls: bool):
    found = RedisLocation.parse(url)
    assert (found.addresses, found.db, found.tls) == (((host, port),), db, tls)
    assert found.prefix == "{holdfast:holdfast}:"


def test_a_socket_is_named_by_its_path():
    found = RedisLocation.parse("unix:///run/redis.sock?db=4&name=shop")
    assert (found.path, found.db, found.prefix) == ("/run/redis.sock", 4, "{holdfast:shop}:")


@pytest.mark.parametrize(
    ("url", "addresses", "service", "db", "tls"),
    [
        ("redis+sentinel://one,two:5000/mymaster", (("one", 26379), ("two", 5000)), "mymaster", 0, False),
        ("rediss+sentinel://me:pw@one/my%20master/3", (("one", 26379),), "my master", 3, True),
        ("valkey+cluster://one:7000,[::1]:7001", (("one", 7000), ("::1", 7001)), None, 0, False),
    ],
)
def test_a_url_may_name_several_sentinels_or_nodes_of_a_cluster(url: str, addresses, service, db: int, tls: bool):
    found = RedisLocation.parse(url)
    assert (found.addresses, found.service, found.db, found.tls) == (addresses, service, db, tls)
    assert found.is_cluster is ("cluster" in url)


@pytest.mark.parametrize(
    ("settings", "level", "replicas"),
    [("", None, 0), ("durability=1s", "1s", 0), ("durability=replicated", "replicated", 1), ("replicas=2", None, 2)],
)
def test_a_url_may_name_a_level_of_durability(settings: str, level: str | None, replicas: int):
    found = RedisLocation.parse(f"redis://cache?{settings}")
    assert (found.durability, found.replicas) == (level, replicas)


def test_a_password_of_sentinels_is_used_and_never_shown():
    found = RedisLocation.parse("redis+sentinel://one/mymaster?sentinel_username=me&sentinel_password=s%40cret&name=a")
    assert (found.sentinel_username, found.sentinel_password) == ("me", "s@cret")
    assert found.url == "redis+sentinel://one/mymaster?sentinel_username=me&sentinel_password=***&name=a"


def test_a_password_is_used_and_never_shown():
    found = RedisLocation.parse("redis://me:s%40cret@cache/0")
    assert (found.username, found.password) == ("me", "s@cret")
    assert "cret" not in found.url
    assert "cret" not in repr(found)
    assert found.full_url == "redis://me:s%40cret@cache/0"


@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        ("redis://me:p@ss@cache/0", "percent-encode"),
        ("redis://me:pa/ss@cache/0", "percent-encode"),
        ("redis://cache/first", "number of a database"),
        ("redis://cache/1?db=2", "number of a database"),
        ("redis://cache?name=a b", "name=<name>"),
        ("redis://cache?name={a}", "name=<name>"),
        ("redis://cache?pool=0", "pool=<connections>"),
        ("redis://cache?colour=red", "supported: name="),
        ("redis://cache:notaport", "percent-encode"),
        ("unix://", "names no socket"),
        ("redis://one,two/0", "redis.sentinel:// or redis.cluster://"),
        ("redis+sentinel:///mymaster", "names no sentinel"),
        ("redis+sentinel://one", "names no service"),
        ("redis+sentinel://one/mymaster/first", "number of a database"),
        ("redis+cluster://one/1", "only database 0"),
        ("redis+cluster://one,,two", "percent-encode"),
        ("redis://cache?durability=always", "durability=volatile"),
        ("redis://cache?durability=replicated&replicas=0", "at least one replica"),
    ],
)
def test_an_invalid_url_is_refused_with_the_remedy_and_without_the_password(url: str, remedy: str):
    with pytest.raises(ConfigError, match=remedy) as refused:
        RedisLocation.parse(url)
    assert "p@ss" not in str(refused.value)
    assert "pa/ss" not in str(refused.value)
