"""`holdfast doctor` calls no store healthy that may lose jobs, or that is about to refuse them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.redis.replicas import pair, until
from tests.servers.redis import connection_of, own_redis

from holdfast import App
from holdfast.backends.redis.location import RedisLocation
from holdfast.backends.redis.server_facts import ServerReport
from holdfast.errors import ConfigError, SchemaMismatch
from holdfast.reports.doctor import examine
from holdfast.reports.doctor_redis import examine_redis
from holdfast.reports.finding import Finding, FindingLevel
from holdfast.testing.redis_server import RedisServer

OK, WARN, BAD = FindingLevel.OK, FindingLevel.WARN, FindingLevel.BAD


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with own_redis("valkey", sync="everysec", maxmemory="100mb") as server:
        yield server


async def _findings(url: str) -> dict[str, Finding]:
    async with App(url) as app:
        await app.opened()
    async with App(url) as app:
        return {finding.check: finding for finding in await examine(app)}


def _url(server: RedisServer, *settings: str) -> str:
    return "&".join([f"{server.url}?name=a", *settings])


async def test_a_server_that_is_set_up_well_has_no_finding(server: RedisServer):
    findings = await _findings(_url(server, "durability=1s"))
    assert {finding.check for finding in findings.values() if finding.verdict is not OK} == set()
    assert {"memory", "eviction", "replicas", "files", "scripts", "completed jobs", "durability"} <= findings.keys()


@pytest.mark.parametrize(
    ("setting", "value", "check", "level", "text"),
    [
        ("appendonly", "no", "durability", BAD, "a crash loses jobs"),
        ("no-appendfsync-on-rewrite", "yes", "durability", BAD, "a crash loses jobs"),
        ("maxmemory", "0", "memory", WARN, "without a limit"),
        ("maxmemory", "1000gb", "memory", WARN, "60% of the machine"),
        ("maxmemory-policy", "allkeys-lru", "eviction", BAD, "jobs are deleted"),
        ("busy-reply-threshold", "0", "scripts", WARN, "never answers BUSY"),
        ("busy-reply-threshold", "50", "scripts", WARN, "has run for 50 ms"),
    ],
)
async def test_a_setting_under_which_jobs_are_lost_is_found_with_its_remedy(
    server: RedisServer, setting: str, value: str, check: str, level: FindingLevel, text: str
):
    connection_of(server.url).config_set(setting, value)
    found = (await _findings(_url(server, "eviction=allow")))[check]
    assert (found.verdict, text in found.text, bool(found.remedy)) == (level, True, True)


async def test_a_server_that_keeps_nothing_is_no_finding_if_that_is_accepted(server: RedisServer):
    connection_of(server.url).config_set("appendonly", "no")
    assert (await _findings(_url(server, "durability=volatile")))["durability"].verdict is OK


@pytest.mark.parametrize(("share", "level"), [(0.85, WARN), (0.97, BAD)])
async def test_a_memory_that_is_nearly_full_is_found(server: RedisServer, share: float, level: FindingLevel):
    client = connection_of(server.url)
    await _findings(_url(server))
    client.setrange("filler", 20_000_000, "x")
    client.config_set("maxmemory", int(client.info("memory")["used_memory"] / share))
    assert (await _findings(_url(server)))["memory"].verdict is level


async def test_a_snapshot_that_could_not_be_written_is_found(server: RedisServer):
    client = connection_of(server.url)
    (server.data / "dump.rdb").mkdir()  # in the place of the file
    client.config_set("appendonly", "no")
    client.bgsave()
    until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err")
    client.config_set("stop-writes-on-bgsave-error", "no")
    assert (await _findings(_url(server)))["files"].verdict is BAD


async def test_the_bytes_of_completed_jobs_are_shown_with_their_limit(server: RedisServer):
    found = (await _findings(_url(server, "completed_bytes=2000000")))["completed jobs"]
    assert (found.verdict, found.text) == (OK, "0.0 MB of 2.0 MB of records and payloads")


async def test_where_a_level_cannot_be_checked_that_is_a_warning(server: RedisServer):
    client = connection_of(server.url)
    client.acl_setuser("blind", enabled=True, nopass=True, keys=["*"], channels=["*"], commands=["+@all", "-config"])
    url = _url(server, "durability=fsync").replace("redis://", "redis://blind:x@")
    assert (await _findings(url))["durability"].verdict is WARN
    found = (await _findings(url.replace("&durability=fsync", "")))["durability"]
    assert (found.verdict, "CONFIG GET is not allowed" in found.text, bool(found.remedy)) == (WARN, True, True)
    assert (await _findings(url.replace("fsync", "volatile")))["durability"].verdict is OK


@pytest.mark.parametrize(
    ("facts", "check", "level", "text"),
    [
        ({"maxmemory_policy": "noeviction"}, "eviction", OK, "noeviction"),
        ({}, "eviction", WARN, "does not say"),
        ({"maxmemory_policy": "volatile-ttl"}, "eviction", WARN, "large enqueues"),
        ({"maxmemory_policy": "noeviction", "evicted_keys": "1200"}, "eviction", WARN, "1,200 keys"),
        ({"latest_fork_usec": "1000000"}, "files", OK, "succeeded"),
        ({"latest_fork_usec": "1000001"}, "files", WARN, "1.0 s, in which no call was answered"),
        ({"aof_last_write_status": "err"}, "files", BAD, "aof_last_write_status"),
        ({"aof_last_bgrewrite_status": "err"}, "files", BAD, "aof_last_bgrewrite_status"),
        ({"aof_last_write_status": "ok", "aof_last_bgrewrite_status": "ok"}, "files", OK, "succeeded"),
    ],
)
def test_what_a_server_reports_about_itself_is_judged(
    facts: dict[str, str], check: str, level: FindingLevel, text: str
):
    (found,) = [found for found in examine_redis({"evicts": "no", **facts}) if found.check == check]
    assert (found.verdict, text in found.text) == (level, True)


@pytest.mark.slow
async def test_replicas_that_are_missing_or_not_waited_for_are_found():
    with pair("valkey") as both:
        async with App(both.url()) as app:
            await app.opened()
        findings = await _findings(both.url())
        assert (findings["replicas"].verdict, findings["replicas"].remedy is not None) == (WARN, True)
        assert (await _findings(both.url("durability=replicated")))["replicas"].verdict is OK
        assert (await _findings(both.url("durability=replicated", "replicas=2")))["replicas"].verdict is BAD
        until(both.is_replicated)
        (found,) = await _only(both.replica_url)
        assert (found.check, found.verdict) == ("store", BAD)
        assert "connect to the primary" in found.text


async def _only(url: str) -> list[Finding]:
    app = App(url)
    try:
        return await examine(app)
    finally:
        await app.close()


async def test_a_store_that_must_not_be_opened_is_a_finding(server: RedisServer):
    connection_of(server.url).config_set("maxmemory-policy", "allkeys-lfu")
    (found,) = await _only(_url(server))
    assert (found.check, found.verdict) == ("store", BAD)
    assert "eviction=allow" in found.text


@pytest.mark.parametrize(
    ("info", "error", "remedy"),
    [
        ({"redis_version": "6.2.14"}, SchemaMismatch, "Redis 7.0 or Valkey 7.2 is needed"),
        ({"valkey_version": "7.0.1", "redis_version": "7.2.4"}, SchemaMismatch, "Redis 7.0 or Valkey 7.2"),
        ({"redis_version": "7.2.0", "maxmemory_policy": "allkeys-random"}, ConfigError, "noeviction"),
    ],
)
def test_an_old_server_and_one_that_evicts_are_refused(info: dict[str, str], error: type[Exception], remedy: str):
    with pytest.raises(error, match=remedy):
        ServerReport(info).check(RedisLocation.parse("redis://cache"))


def test_a_policy_that_deletes_only_keys_with_a_time_to_live_is_accepted():
    info = {"redis_version": "7.2.0", "maxmemory_policy": "volatile-lru"}
    ServerReport(info).check(RedisLocation.parse("redis://cache"))
