"""The keys of a store on Redis, and of the effects and steps next to it, unpacked without Holdfast's own code."""

from __future__ import annotations

import json
import struct
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from typing import Any
from uuid import UUID

import msgspec

_HEAD = struct.Struct(">BBBBIIqQIiIq")
_LEASE = struct.Struct(">QQQI")
_LENGTH, _SHORT, _SEQ = struct.Struct(">I"), struct.Struct(">H"), struct.Struct(">Q")
_STATES = ("", "ready", "scheduled", "blocked", "blocked", "running", "completed", "failed", "cancelled")
SETS = {
    "scheduled": "st",
    "blocked": "b",
    "ready": "r",
    "running": "x",
    "completed": "c",
    "failed": "f",
    "cancelled": "k",
}
_LISTED = "completed"  # in a list for each lane, in place of a sorted set
_KEYED, _APART, _EXTRA, _LEASED = 4, 8, 32, 64
_PAGE = 1000
SHARDS = 256  # lists of effects, and of steps
_CHUNK = 1000  # seqs whose ids are one text
_decode = msgspec.msgpack.decode
Row = tuple[Any, ...]


class RedisKeys:
    """Reads the sets of jobs, their records and their attempts; each command by itself."""

    def __init__(self, client: Any, prefix: bytes) -> None:
        """`client` is one of redis-py, with `prefix` before all keys of the store."""
        self._client = client
        self._prefix = prefix
        self.lanes = self._read_lanes()

    def is_marked(self) -> bool:
        """Return whether a run has created the store."""
        return bool(self._client.exists(self._prefix + b"torture"))

    def _read_lanes(self) -> list[list[str]]:
        lanes: list[bytes] = self._client.lrange(self._prefix + b"lanes", 0, -1)
        return [lane.decode().split("\0") for lane in lanes]

    def written(self, table: str) -> list[Row]:
        """Return effects or steps: job, attempt, fence, worker, number. Numbers grow within a list."""
        moment = self._client.pipeline(transaction=True)
        for shard in range(SHARDS):
            moment.lrange(self._prefix[:-1] + f"/torture:{table}:{shard}".encode(), 0, -1)
        rows = [
            (*json.loads(text), place * SHARDS + shard)
            for shard, found in enumerate(moment.execute())
            for place, text in enumerate(found, 1)
        ]
        return sorted(rows, key=lambda row: row[4])

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The number of jobs in each state, all at one moment: a job that moves would be missed otherwise."""
        while True:
            moment = self._client.pipeline(transaction=True)
            moment.llen(self._prefix + b"lanes")
            states = [state for state in SETS for _ in self._keys(state)]
            for state in SETS:
                for _, key in self._keys(state):
                    moment.llen(key) if state == _LISTED else moment.zcard(key)
            moment.hvals(self._prefix + b"gone")
            lanes, *sizes, gone = moment.execute()
            if lanes == len(self.lanes):
                counts = {
                    state: sum(size for of, size in zip(states, sizes, strict=True) if of == state) for state in SETS
                }
                return {**counts, _LISTED: counts[_LISTED] - sum(map(int, gone))}
            self.lanes = self._read_lanes()

    def _keys(self, state: str) -> list[tuple[int, bytes]]:
        letters = SETS[state]
        return [(n, self._prefix + f"{letter}{n}".encode()) for n in range(len(self.lanes)) for letter in letters]

    def members(self, state: str) -> Iterator[tuple[int, bytes]]:
        """Go over the jobs of a state: the lane, and 8 bytes of seq with 16 of id."""
        for lane, key in self._keys(state):
            if state == _LISTED:
                yield from ((lane, member) for member in self._listed(key))
            else:
                yield from ((lane, member) for member in self._client.zrange(key, 0, -1))

    def _listed(self, key: bytes) -> Iterator[bytes]:
        """Go over a ledger: 7 bytes of the end, 6 of the seq; entries of deleted jobs may still be there."""
        seqs = [int.from_bytes(entry[7:], "big") for entry in self._client.lrange(key, 0, -1)]
        for first in range(0, len(seqs), _PAGE):
            page = seqs[first : first + _PAGE]
            reading = self._client.pipeline(transaction=False)
            for chunk, at in (divmod(seq, _CHUNK) for seq in page):
                reading.getrange(self._prefix + b"i%d" % chunk, 16 * at, 16 * at + 15)
            ids = dict(zip(reading.execute(), page, strict=True))
            for id16, record in self.records([id16 for id16 in ids if id16]):
                if record is not None and _SEQ.unpack_from(record, 20)[0] == ids[id16]:
                    yield _SEQ.pack(ids[id16]) + id16

    def records(self, ids: list[bytes]) -> Iterator[tuple[bytes, bytes | None]]:
        """Return the records of ids, in any order."""
        buckets: defaultdict[bytes, list[bytes]] = defaultdict(list)
        for id16 in ids:
            buckets[id16[:4]].append(id16)
        for bucket, names in buckets.items():
            for first in range(0, len(names), _PAGE):
                page = names[first : first + _PAGE]
                yield from zip(page, self._client.hmget(self._prefix + b"j" + bucket, page), strict=True)

    def recorded(self) -> Iterator[tuple[bytes, str]]:
        """Go over all records: the id, and the state that is written in it."""
        for key in self._client.scan_iter(match=self._prefix + b"j" + b"?" * 4, count=_PAGE):
            for id16, record in self._client.hscan_iter(key, count=_PAGE):
                if len(id16) == len(UUID(int=0).bytes):
                    yield id16, _STATES[int(record[0])]

    def jobs(self) -> Iterator[Row]:
        """Go over the jobs of each set; one without a record is left out here, and reported by `misplaced`."""
        found = self._client.hgetall(self._prefix + b"workers")
        workers = {int(number): name.decode() for number, name in found.items()}
        for state in SETS:
            for id16, record in self.records([member[8:] for _, member in self.members(state)]):
                if record is not None:
                    yield _row(id16, record, state, self.lanes, workers)

    def attempts(self) -> Iterator[Row]:
        """Go over the attempts of the jobs that are in a set."""
        seqs = {member[8:]: _SEQ.unpack_from(member)[0] for state in SETS for _, member in self.members(state)}
        for key in self._client.scan_iter(match=self._prefix + b"a" + b"?" * 16, count=_PAGE):
            seq = seqs.get(key.removeprefix(self._prefix + b"a"))
            for text in self._client.hgetall(key).values() if seq is not None else ():
                attempt, _, _, worker, started, ended, outcome, failure = _decode(text)
                yield seq, attempt, outcome, worker, started, ended, failure[0] if failure else None


def seq_of(record: bytes) -> int:
    """Return the seq of a record."""
    return int(_HEAD.unpack_from(record)[7])


def order_key_of(record: bytes) -> bytes | None:
    """Return the order key of a record."""
    flags, at = record[1], _HEAD.size
    if not flags & _KEYED:
        return None
    at += _LEASE.size if flags & _LEASED else 0
    (length,) = _SHORT.unpack_from(record, at)
    key = record[at + _SHORT.size : at + _SHORT.size + length]
    return None if key.startswith(b"\0") else key  # that of a limit begins so, and promises no order


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
