"""The names of workers, which records name by number: forgotten when no record has the number any more.

A number is never given twice. A worker that is silent and has no lease is *retired*: its name no longer leads to its
number, so that no further record gets that. The next prune notes the newest end of a completed job: every record with
the number ended at that time or before. When all completed jobs up to then are pruned, the name is deleted.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.backends.redis.job_reads import JobReads
from holdfast.backends.redis.record import unpack_entry
from holdfast.backends.redis.steps import Command, Group, Guard, read, write
from holdfast.store.steps import Steps

_PAGE = 100
_NEW = 0  # when it is not yet noted which records may have the number


def prune_names(rows: JobReads) -> Steps[None]:
    """Retire workers, and delete names that no record needs."""
    _, (names, living, retired) = yield from read(
        ("HLEN", "worker"), ("HLEN", "heartbeats"), ("ZRANGE", "retired", 0, _PAGE - 1, "WITHSCORES")
    )
    if retired:
        numbers = {int(number): int(float(until)) for number, until in zip(retired[::2], retired[1::2], strict=True)}
        yield from _forget(rows, numbers)
    cursor = b"" if names > living else b"0"
    while cursor != b"0":
        _, ((cursor, found),) = yield from read(("HSCAN", "worker", cursor or 0, "COUNT", _PAGE))
        yield from _retire(found[::2], found[1::2])


def _retire(names: Sequence[bytes], numbers: Sequence[bytes]) -> Steps[None]:
    groups: list[Group] = []
    for name, number in zip(names, numbers, strict=True):
        guards = [
            Guard("h", "heartbeats", name, ""),
            Guard("h", "worker", name, number),
            Guard("ZCARD", b"w" + number, "", 0),
        ]
        groups.append(Group(guards, [("HDEL", "worker", name), ("ZADD", "retired", _NEW, number)]))
    if groups:
        yield from write(groups)


def _forget(rows: JobReads, retired: dict[int, int]) -> Steps[None]:
    yield from rows.directory.refresh()
    lanes = range(len(rows.directory.lanes))
    places: list[Command] = [("LINDEX", f"c{lane}", place) for place in (0, -1) for lane in lanes]
    now, found = yield from read(*places)
    ends = [None if entry is None else unpack_entry(entry)[0] for entry in found]
    oldest = min((end for end in ends[: len(lanes)] if end is not None), default=None)
    newest = max((end for end in ends[len(lanes) :] if end is not None), default=now)
    commands: list[Command] = []
    for number, until in retired.items():
        if until == _NEW:
            commands.append(("ZADD", "retired", max(now, newest), number))
        elif oldest is None or oldest > until:
            commands += (("HDEL", "workers", number), ("ZREM", "retired", number))
    if commands:
        yield from write([Group([], commands)])
