"""The yardstick on Redis: what a careful person writes by hand, two Lua scripts and the driver.

It does: ids made by the client (UUIDv7 as text); a growing fence per claim; a lease per job with its worker, start and
end; a ledger in which a job is completed once, and only under the fence that holds it; each job of a batch finished by
name. Claim and finish are one script each, so one trip and all or nothing. Each job is handed to a handler, an `async
def` that gets the job's id and its payload decoded, and is driven to its end by hand.

It does not: check arguments, keep priorities, order or instants, know queues and tasks, know an id again, find what a
worker holds or what has expired, retry, extend, rescue, record failures, count for charts, or overlap claim and finish.
"""

from __future__ import annotations

import json
import os
import struct
import time
from typing import Any
from urllib.parse import parse_qs, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from benchmarks.raw.common import BATCH, Drained, Held, be_a_process, decode, handle, ready_to_go, uuids

PROGRAM = "benchmarks.raw.redis"
_EACH = 1000  # jobs in one trip of an enqueue
_LEASE = 30_000_000
_LEDGER = struct.Struct(">QQQ")

_CLAIM = """
local ids = redis.call('LPOP', KEYS[1], ARGV[1])
if not ids then return {} end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local fence = redis.call('INCR', KEYS[2])
local payloads = redis.call('HMGET', KEYS[3], unpack(ids))
local held = struct.pack('>I8I8I8', fence, now, now + ARGV[2]) .. ARGV[3]
local words = {}
for i, id in ipairs(ids) do
  words[2 * i - 1], words[2 * i] = id, held
end
redis.call('HSET', KEYS[4], unpack(words))
return {fence, ids, payloads}
"""
_FINISH = """
local time = redis.call('TIME')
local finished, fence = struct.pack('>I8', time[1] * 1000000 + time[2]), struct.pack('>I8', ARGV[1])
local ids = {}
for i = 2, #ARGV do ids[i - 1] = ARGV[i] end
local leases, words, done = redis.call('HMGET', KEYS[1], unpack(ids)), {}, {}
for i, id in ipairs(ids) do
  local lease = leases[i]
  if lease and string.sub(lease, 1, 8) == fence then
    words[#words + 1], words[#words + 2] = id, string.sub(lease, 1, 16) .. finished
    done[#done + 1] = id
  end
end
if #done > 0 then
  redis.call('HDEL', KEYS[1], unpack(done))
  redis.call('HSET', KEYS[2], unpack(words))
end
return #done
"""


class Loop:
    """A connection, with the two scripts loaded."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self.at = f"{{raw:{parse_qs(parts.query)['name'][0]}}}:"
        self.client: Any = redis.Redis.from_url(target.partition("?")[0], retry=Retry(NoBackoff(), 0))
        self._claim, self._finish = self.client.script_load(_CLAIM), self.client.script_load(_FINISH)
        self.ready, self.fence, self.job, self.lease, self.done = (
            f"{self.at}{name}" for name in ("ready", "fence", "job", "lease", "done")
        )

    def claim(self, worker: str) -> tuple[int, list[bytes], list[bytes]]:
        """Lease the next jobs; return the fence, their ids and their payloads."""
        keys = (self.ready, self.fence, self.job, self.lease)
        reply = self.client.evalsha(self._claim, 4, *keys, BATCH, _LEASE, worker)
        return tuple(reply) if reply else (0, [], [])

    def finish(self, fence: int, ids: list[bytes]) -> None:
        """Complete jobs that are held under this fence."""
        written = self.client.evalsha(self._finish, 2, self.lease, self.done, fence, *ids)
        if written != len(ids):
            message = f"{len(ids) - written} of {len(ids)} leases were lost under fence {fence}"
            raise RuntimeError(message)

    def close(self) -> None:
        self.client.close()


def connect(target: str) -> Loop:
    return Loop(target)


def create(target: str) -> None:
    """There is nothing to make."""


def bulk(loop: Loop, count: int, payload: str | None = None) -> None:
    """Insert jobs, some at a time, each trip all or nothing; with their numbers, or all with one payload."""
    ids = uuids(count)
    for first in range(0, count, _EACH):
        some = ids[first : first + _EACH]
        trip = loop.client.pipeline(transaction=True)
        trip.hset(loop.job, mapping={job_id: payload or f'{{"n":{first + at}}}' for at, job_id in enumerate(some)})
        trip.rpush(loop.ready, *some)
        trip.execute()


def one(loop: Loop, number: int) -> None:
    """Insert one job, and wake who waits."""
    (job_id,) = uuids(1)
    trip = loop.client.pipeline(transaction=True)
    trip.hset(loop.job, job_id, json.dumps({"n": number}))
    trip.rpush(loop.ready, job_id)
    trip.publish(f"{loop.at}wake", "")
    trip.execute()


def drain(loop: Loop, worker: str) -> Drained:
    """Claim and finish until nothing is ready."""
    handled = 0
    while True:
        fence, ids, payloads = loop.claim(worker)
        if not ids:
            return Drained(handled)
        for job_id, payload in zip(ids, payloads, strict=True):
            try:
                handle(job_id.decode(), **decode(payload)).send(None)
            except StopIteration:
                handled += 1
        loop.finish(fence, ids)


def watch(loop: Loop, worker: str, count: int) -> list[tuple[int, int]]:
    """Handle `count` jobs as they come; return of each its number and when its handler began, in ns."""
    starts: list[tuple[int, int]] = []
    ear = loop.client.pubsub(ignore_subscribe_messages=True)
    ear.subscribe(f"{loop.at}wake")
    while len(starts) < count:
        fence, ids, payloads = loop.claim(worker)
        if ids:
            starts.extend((decode(payload)["n"], time.monotonic_ns()) for payload in payloads)
            loop.finish(fence, ids)
        else:
            ear.get_message(timeout=0.5)
    ear.close()
    return starts


def held(target: str) -> Held:
    """Count what the database holds."""
    loop = connect(target)
    client = loop.client
    found = client.hlen(loop.job), client.llen(loop.ready), client.hlen(loop.lease), client.hlen(loop.done)
    loop.close()
    return Held(*found)


def span(target: str) -> float:
    """Return the seconds from the first claim to the last completion, by the ledger."""
    loop = connect(target)
    entries = [_LEDGER.unpack_from(entry) for entry in loop.client.hvals(loop.done)]
    loop.close()
    return float(max(finished for *_, finished in entries) - min(started for _, started, _ in entries)) / 1e6


def _drain(target: str) -> Drained:
    loop = connect(target)
    ready_to_go()
    return drain(loop, f"raw-{os.getpid()}")


def _watch(target: str, count: int) -> list[tuple[int, int]]:
    loop = connect(target)
    ready_to_go()
    return watch(loop, f"raw-{os.getpid()}", count)


if __name__ == "__main__":
    be_a_process(_drain, _watch)
