"""What a run reads of a store on Redis, by the names of the statements that read it from a SQL store."""

from __future__ import annotations

import json
import struct
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from typing import Any
from uuid import UUID

import msgspec

from holdfast.torture.names import QUEUES

_HEAD = struct.Struct(">BBBBIIqQIiIq")
_LEASE = struct.Struct(">QQQI")
_LENGTH, _SHORT, _SEQ = struct.Struct(">I"), struct.Struct(">H"), struct.Struct(">Q")
_STATES = ("", "ready", "scheduled", "blocked", "blocked", "running", "completed", "failed", "cancelled")
_SETS = {
    "scheduled": "st",
    "blocked": "b",
    "ready": "r",
    "running": "x",
    "completed": "c",
    "failed": "f",
    "cancelled": "k",
}
_KEYED, _APART, _EXTRA, _LEASED = 4, 8, 32, 64
_PAGE = 1000
_NO_ROWS = {"all_effects", "doubled_steps", "missing_steps", "wrong_order"}
_decode = msgspec.msgpack.decode
Row = tuple[Any, ...]


class RedisQuery:
    """`Query` over the keys of a store. It has no effects: those are written by transactions, which it lacks."""

    def __init__(self, client: Any, prefix: bytes) -> None:
        """`client` is one of redis-py, with `prefix` before all keys of the store."""
        self._client = client
        self._prefix = prefix
        self._lanes = self._read_lanes()

    def _read_lanes(self) -> list[list[str]]:
        lanes: list[bytes] = self._client.lrange(self._prefix + b"lanes", 0, -1)
        return [lane.decode().split("\0") for lane in lanes]

    def all(self, name: str, **names: str | int) -> list[Row]:
        """Return all rows."""
        if name == "all_jobs":
            return sorted(self._jobs(), key=lambda row: row[4])
        if name == "all_attempts":
            return sorted(self._attempts(), key=lambda row: row[:2])
        if name in _NO_ROWS:
            return []
        return [(self._count(name, str(names.get("state"))),)]

    def _count(self, name: str, state: str) -> int:
        if name == "has_marker":
            return int(self._client.exists(self._prefix + b"torture"))
        if name == "count_state":
            return self._sizes[state]
        if name == "count_foreign":
            theirs = {number for number, (queue, _) in enumerate(self._lanes) if queue not in QUEUES}
            return sum(lane in theirs for state in _SETS for lane, _ in self._members(state))
        return 0  # of what such a store cannot have

    def each(self, name: str) -> Iterator[Row]:
        """Go over rows."""
        return iter(self.all(name))

    @cached_property
    def _sizes(self) -> dict[str, int]:
        """The number of jobs in each state, all at one moment: a job that moves would be missed otherwise."""
        while True:
            moment = self._client.pipeline(transaction=True)
            moment.llen(self._prefix + b"lanes")
            states = [state for state in _SETS for _ in self._keys(state)]
            for state in _SETS:
                for _, key in self._keys(state):
                    moment.zcard(key)
            lanes, *sizes = moment.execute()
            if lanes == len(self._lanes):
                return {
                    state: sum(size for of, size in zip(states, sizes, strict=True) if of == state) for state in _SETS
                }
            self._lanes = self._read_lanes()

    def _keys(self, state: str) -> list[tuple[int, bytes]]:
        letters = _SETS[state]
        return [(n, self._prefix + f"{letter}{n}".encode()) for n in range(len(self._lanes)) for letter in letters]

    def _members(self, state: str) -> Iterator[tuple[int, bytes]]:
        for lane, key in self._keys(state):
            for member in self._client.zrange(key, 0, -1):
                yield lane, member

    def _records(self, ids: list[bytes]) -> Iterator[tuple[bytes, bytes | None]]:
        """Return the records of ids, in any order."""
        buckets: defaultdict[bytes, list[bytes]] = defaultdict(list)
        for id16 in ids:
            buckets[id16[:4]].append(id16)
        for bucket, names in buckets.items():
            for first in range(0, len(names), _PAGE):
                page = names[first : first + _PAGE]
                yield from zip(page, self._client.hmget(self._prefix + b"j" + bucket, page), strict=True)

    def _jobs(self) -> Iterator[Row]:
        """Go over the jobs of each set; one without a record is left out here, and reported by `misplaced`."""
        found = self._client.hgetall(self._prefix + b"workers")
        workers = {int(number): name.decode() for number, name in found.items()}
        for state in _SETS:
            for id16, record in self._records([member[8:] for _, member in self._members(state)]):
                if record is not None:
                    yield _row(id16, record, state, self._lanes, workers)

    def _attempts(self) -> Iterator[Row]:
        seqs = {member[8:]: _SEQ.unpack_from(member)[0] for state in _SETS for _, member in self._members(state)}
        for key in self._client.scan_iter(match=self._prefix + b"a" + b"?" * 16, count=_PAGE):
            seq = seqs.get(key.removeprefix(self._prefix + b"a"))
            for text in self._client.hgetall(key).values() if seq is not None else ():
                attempt, _, _, worker, started, ended, outcome, failure = _decode(text)
                yield seq, attempt, outcome, worker, started, ended, failure[0] if failure else None

    def misplaced(self) -> list[str]:
        """Return the jobs that are in no set, in several, or in another than that of their state."""
        found: defaultdict[bytes, list[str]] = defaultdict(list)
        for state in _SETS:
            for _, member in self._members(state):
                found[member[8:]].append(state)
        wrong: list[str] = []
        for key in self._client.scan_iter(match=self._prefix + b"j" + b"?" * 4, count=_PAGE):
            for id16, record in self._client.hscan_iter(key, count=_PAGE):
                if len(id16) == len(UUID(int=0).bytes):
                    places, state = found.pop(id16, []), _STATES[int(record[0])]
                    if places != [state]:
                        wrong.append(f"job {UUID(bytes=id16)} is {state}, and in the sets of {places}")
        return wrong + [f"job {UUID(bytes=id16)} in {places} has no record" for id16, places in found.items()]


def _row(id16: bytes, record: bytes, state: str, lanes: list[list[str]], workers: dict[int, str]) -> Row:
    _, flags, _, _, attempt, _, turn, seq, lane, priority, most, enqueued = _HEAD.unpack_from(record)
    extra: dict[str, Any] = {}
    at, finished, worker = _HEAD.size, None, None
    if flags & _LEASED:
        _, _, finished, number = _LEASE.unpack_from(record, at)
        worker = workers.get(number)
        at += _LEASE.size
    if flags & _KEYED:
        at += _SHORT.size + _SHORT.unpack_from(record, at)[0]
    if flags & _EXTRA:
        end = at + _LENGTH.size + _LENGTH.unpack_from(record, at)[0]
        extra, at = _decode(record[at + _LENGTH.size : end]), end
    body = at + _LENGTH.size + _LENGTH.unpack_from(record, at)[0]
    headers = _decode(record[body:])[0] if len(record) > body and not flags & _APART else None
    ended = finished if state == "completed" else extra.get("f")
    queue, task = lanes[int(lane)]
    return (str(UUID(bytes=id16)), state, attempt, most, seq, int(state == "completed"), worker, turn, priority,
            enqueued, ended, extra.get("w"), json.dumps(headers) if headers else None, queue, task)  # fmt: skip
