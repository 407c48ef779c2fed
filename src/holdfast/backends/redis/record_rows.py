"""`RecordRows` on Redis: for each kind a hash of the records, and a set of their names in order."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from holdfast.backends.redis.steps import Guard, Restart, change, read
from holdfast.store.record_rows import FirstRecord, RecordRow
from holdfast.store.steps import Steps


class _KeptRecord(NamedTuple):
    """A record as it is kept."""

    version: int
    touched_at: int
    content: str


_decode = msgspec.json.Decoder(_KeptRecord).decode
_encode = msgspec.json.encode


class RedisRecordRows:
    """`RecordRows`. A record is changed if it is as it was read; otherwise the verb reads it again."""

    def find(self, kind: str, name: str) -> Steps[RecordRow | None]:  # noqa: D102
        now, (text,) = yield from read(("HGET", _records(kind), name))
        return None if text is None else _row(name, text, now)

    def page(self, kind: str, after: str | None, limit: int, *, descending: bool) -> Steps[list[RecordRow]]:  # noqa: D102
        start = ("+" if descending else "-") if after is None else f"({after}"
        order = ("-", "BYLEX", "REV") if descending else ("+", "BYLEX")
        _, (found,) = yield from read(("ZRANGE", _names(kind), start, *order, "LIMIT", 0, limit))
        return (yield from self._named(kind, [name.decode() for name in found]))

    def first(self, kind: str, limit: int) -> Steps[list[FirstRecord]]:  # noqa: D102
        found = yield from self.page(kind, None, limit, descending=False)
        _, (number,) = yield from read(("ZCARD", _names(kind)))
        return [FirstRecord(row.name, row.version, row.age, number) for row in found]

    def put(self, kind: str, name: str, version: int, content: str) -> Steps[bool]:  # noqa: D102
        now, (old,) = yield from read(("HGET", _records(kind), name))
        if version != (0 if old is None else _decode(old).version):
            return False
        text = _encode(_KeptRecord(version + 1, now, content))
        guard = Guard("h", _records(kind), name, old or b"")
        yield from change([guard], ("HSET", _records(kind), name, text), ("ZADD", _names(kind), 0, name))
        return True

    def delete(self, kind: str, name: str, version: int) -> Steps[bool]:  # noqa: D102
        _, (old,) = yield from read(("HGET", _records(kind), name))
        if old is None or _decode(old).version != version:
            return False
        guard = Guard("h", _records(kind), name, old)
        yield from change([guard], ("HDEL", _records(kind), name), ("ZREM", _names(kind), name))
        return True

    def _named(self, kind: str, names: list[str]) -> Steps[list[RecordRow]]:
        if not names:
            return []
        now, (texts,) = yield from read(("HMGET", _records(kind), *names))
        if None in texts:  # one was deleted since its name was read
            raise Restart
        return [_row(name, text, now) for name, text in zip(names, texts, strict=True)]


def _records(kind: str) -> str:
    return f"records:{kind}"


def _names(kind: str) -> str:
    return f"names:{kind}"


def _row(name: str, text: bytes, now: int) -> RecordRow:
    kept = _decode(text)
    return RecordRow(name, kept.version, kept.content, kept.touched_at, now - kept.touched_at)
