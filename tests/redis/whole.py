"""Checks the keys of a store: every record is in the sets of its state and in no other, and no key is left over."""

from __future__ import annotations

from collections import Counter
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.servers.redis import connection_of

from holdfast.backends.redis.job_reads import CHUNK
from holdfast.backends.redis.job_writes import score_of, set_of
from holdfast.backends.redis.record import (
    APART,
    ASKED,
    BLOCKED,
    COMPLETED,
    LEASED,
    LIMITED,
    RUNNING,
    SCHEDULED,
    Record,
    member,
    unpack,
    unpack_entry,
)

_OF_LANES = "rstbqxcfk"


def check_whole(url: str) -> None:
    """Raise `AssertionError`, with the key, unless all keys agree."""
    (name,) = parse_qs(urlsplit(url).query)["name"]
    client: Any = connection_of(url)
    prefix = f"{{holdfast:{name}}}:".encode()
    keys = {key[len(prefix) :] for key in client.scan_iter(match=prefix + b"*", count=10_000)}
    jobs: dict[bytes, tuple[bytes, Record]] = {}
    fields: set[bytes] = set()
    for key in keys:
        if key[:1] == b"j":
            for field, text in client.hgetall(prefix + key).items():
                if len(field) == 16:
                    record = unpack(text)
                    jobs[member(record.seq, field)] = (field, record)
                else:
                    fields.add(field)
    sets: dict[str, dict[bytes, float]] = {}
    for key in keys:
        if key[:1].decode("latin1") in _OF_LANES and key[1:].isdigit():
            sets[key.decode()] = (
                _ledger(client, prefix, key, jobs)
                if key[:1] == b"c"
                else dict(client.zrange(prefix + key, 0, -1, withscores=True))
            )
    _check_states(jobs, sets)
    _check_leases(client, prefix, jobs, keys)
    _check_key_sets(client, prefix, jobs, keys)
    _check_limit_keys(client, prefix, jobs, keys)
    _check_due(client, prefix, sets)
    _check_index(client, prefix, jobs)
    ids = {id16 for id16, _ in jobs.values()}
    assert {field[:16] for field in fields} <= ids, "a field of a job that is gone"
    assert {key[1:] for key in keys if key[:1] == b"a" and len(key) == 17} <= ids, "attempts of a job that is gone"
    size = sum(_length(client, prefix, id16) for id16, record in jobs.values() if record.code == COMPLETED)
    assert int(client.get(prefix + b"bytes") or 0) == size


def _length(client: Any, prefix: bytes, id16: bytes) -> int:
    record = client.hget(prefix + b"j" + id16[:4], id16)
    apart = int.from_bytes(record[-4:], "big") if unpack(record).flags & APART else 0
    return len(record) + apart


def _ledger(client: Any, prefix: bytes, key: bytes, jobs: dict[bytes, tuple[bytes, Record]]) -> dict[bytes, float]:
    """Return the entries of jobs that exist; the others are counted, none is the first, and all are in order."""
    ids = {record.seq: id16 for id16, record in jobs.values()}
    listed = client.lrange(prefix + key, 0, -1)
    entries = [unpack_entry(entry + ids.get(int.from_bytes(entry[7:], "big"), b"")) for entry in listed]
    ends = [end for end, _ in entries]
    assert ends == sorted(ends), "the ledger is in order"
    live = {each: float(end) for end, each in entries if each in jobs}
    gone = int(client.hget(prefix + b"gone", key[1:]) or 0)
    assert len(entries) - len(live) == gone, "entries of jobs that are gone are counted"
    assert not entries or entries[0][1] in jobs, "the first entry is that of a job"
    return live


def _check_states(jobs: dict[bytes, tuple[bytes, Record]], sets: dict[str, dict[bytes, float]]) -> None:
    expected: dict[str, dict[bytes, float]] = {}
    for each, (_, record) in jobs.items():
        expected.setdefault(set_of(record), {})[each] = float(score_of(record))
    assert sets == expected


def _check_leases(client: Any, prefix: bytes, jobs: dict[bytes, tuple[bytes, Record]], keys: set[bytes]) -> None:
    running = {each: record for each, (_, record) in jobs.items() if record.code == RUNNING}
    assert set(client.zrange(prefix + b"leases", 0, -1)) == set(running)
    held: dict[bytes, float] = {}
    for key in keys:
        if key[:1] == b"w" and key[1:].isdigit():
            for each, fence in client.zrange(prefix + key, 0, -1, withscores=True):
                assert running[each].worker == int(key[1:])
                held[each] = fence
    assert held == {each: float(record.fence) for each, record in running.items()}
    names, numbers = client.hgetall(prefix + b"workers"), client.hgetall(prefix + b"worker")
    assert {names[number] for number in numbers.values()} == set(numbers)
    assert {record.worker for _, record in jobs.values() if record.flags & LEASED} <= set(map(int, names))
    asked = dict(client.zrange(prefix + b"asked", 0, -1, withscores=True))
    assert asked == {each: float(record.worker) for each, record in running.items() if record.flags & ASKED}


def _check_key_sets(client: Any, prefix: bytes, jobs: dict[bytes, tuple[bytes, Record]], keys: set[bytes]) -> None:
    lanes = [lane.partition(b"\0")[0] for lane in client.lrange(prefix + b"lanes", 0, -1)]
    expected: dict[bytes, set[bytes]] = {}
    for each, (_, record) in jobs.items():
        if record.in_key_set and not record.is_limited:
            expected.setdefault(lanes[record.lane] + b"\0" + record.key, set()).add(each)
    key_sets = {key[1:]: client.zrange(prefix + key, 0, -1) for key in keys if key[:1] == b"o" and key[1:2] != b"\0"}
    assert {key_set: set(members) for key_set, members in key_sets.items()} == expected
    for members in key_sets.values():
        states = [jobs[each][1].code == BLOCKED for each in members]
        assert states == [False] + [True] * (len(states) - 1), "the head, and only it, is not blocked"
    assert client.smembers(prefix + b"lines") == {key_set for key_set, members in key_sets.items() if len(members) > 1}


def _check_limit_keys(client: Any, prefix: bytes, jobs: dict[bytes, tuple[bytes, Record]], keys: set[bytes]) -> None:
    """Waiting and admitted jobs are in the sets of their keys, by turn; only such have slots; all keys are listed."""
    expected: dict[bytes, dict[bytes, float]] = {}
    for each, (_, record) in jobs.items():
        if record.in_key_set and record.is_limited:
            kind = b"o" if record.code == LIMITED else b"m"
            expected.setdefault(kind + record.key_set(""), {})[each] = float(record.turn)
    limited = {key for key in keys if key[1:2] == b"\0" and key[:1] in b"oml"}
    sets = {key: dict(client.zrange(prefix + key, 0, -1, withscores=True)) for key in limited if key[:1] != b"l"}
    assert sets == expected
    key_sets = {key[1:] for key in limited}
    assert {b"l" + key_set for key_set in key_sets} <= limited, "a key without a version"
    for key_set in key_sets:
        slots = client.hgetall(prefix + b"l" + key_set).items()
        held = {name for name, text in slots if len(name) > 1 and not text.startswith(b"s")}
        assert held <= sets.get(b"m" + key_set, {}).keys(), "a slot of a job that is not admitted"
    listed = [client.zrange(prefix + key, 0, -1) for key in keys if key[:1] == b"y" and key[1:].isdigit()]
    assert {key_set for some in listed for key_set in some} == key_sets
    assert set(client.zrange(prefix + b"wakes", 0, -1)) <= key_sets


def _check_due(client: Any, prefix: bytes, sets: dict[str, dict[bytes, float]]) -> None:
    first = {name.encode(): min(scores.values()) for name, scores in sets.items() if name[0] in "st"}
    assert dict(client.zrange(prefix + b"due", 0, -1, withscores=True)) == first
    assert SCHEDULED  # the sets of its two kinds


def _check_index(client: Any, prefix: bytes, jobs: dict[bytes, tuple[bytes, Record]]) -> None:
    chunks: Counter[bytes] = Counter()
    for each, (id16, record) in jobs.items():
        chunk, at = divmod(record.seq, CHUNK)
        assert client.getrange(prefix + b"i%d" % chunk, 16 * at, 16 * at + 15) == id16, each
        chunks[b"%d" % chunk] += 1
    assert {chunk: int(number) for chunk, number in client.hgetall(prefix + b"chunks").items()} == chunks
    assert set(client.zrange(prefix + b"buckets", 0, -1)) == {id16[:4] for id16, _ in jobs.values()}


__all__ = ["check_whole"]
