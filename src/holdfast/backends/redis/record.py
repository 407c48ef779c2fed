"""The packed record of a job, as the scripts know it: see `lua/prelude.lua`."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import msgspec

from holdfast.model.job import JobState
from holdfast.store.job_rows import JobRow

LIMITED, READY, SCHEDULED, BLOCKED, WAITING, RUNNING, COMPLETED, FAILED, CANCELLED = range(9)
STATES = {
    LIMITED: JobState.BLOCKED,  # until its limit key has a slot
    READY: JobState.READY,
    SCHEDULED: JobState.SCHEDULED,
    BLOCKED: JobState.BLOCKED,  # behind the head of its order key
    WAITING: JobState.BLOCKED,  # by its parents
    RUNNING: JobState.RUNNING,
    COMPLETED: JobState.COMPLETED,
    FAILED: JobState.FAILED,
    CANCELLED: JobState.CANCELLED,
}
CODES = {state: code for code, state in STATES.items() if code not in {LIMITED, WAITING}}
RETRYING, ISOLATED, KEYED, APART, ASKED, EXTRA, LEASED, FOLLOWED = (1 << bit for bit in range(8))
HEAD = struct.Struct(">BBBBIIqQIiIq")
LEASE = struct.Struct(">QQQI")
_SHORT, LONG, _SEQ = struct.Struct(">H"), struct.Struct(">I"), struct.Struct(">Q")
_MOST = 255  # of the counters that are one byte


class Extra(msgspec.Struct, frozen=True, omit_defaults=True, rename=lambda name: name[0]):
    """What only some jobs have, and no script reads."""

    result: str | None = None
    why: str | None = None  # the reason of a failed or cancelled job, or of a requested cancellation
    finished_at: int | None = None  # of a failed or cancelled job
    percent: float | None = None
    note: str | None = None


_encode, _decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(Extra).decode
NOTHING = Extra()


class Record(NamedTuple):
    """The parts of a record. `span` is that of a lease or, of a completed job, its end; `body` the payload and more.

    `key` is the order key or, after a NUL, the limit key; empty if it has neither.
    """

    code: int
    flags: int
    interrupted: int
    lost: int
    attempt: int
    excused: int
    turn: int
    seq: int
    lane: int
    priority: int
    max_attempts: int
    enqueued_at: int
    fence: int
    started_at: int
    span: int
    worker: int
    key: bytes
    extra: Extra
    body: bytes

    @property
    def order_key(self) -> str | None:
        """Its order key."""
        return None if not self.key or self.is_limited else self.key.decode()

    @property
    def limit_key(self) -> str | None:
        """Its limit key."""
        return self.key[1:].decode() if self.is_limited else None

    @property
    def is_limited(self) -> bool:
        """Whether it has a limit key."""
        return self.key[:1] == b"\0"

    @property
    def in_key_set(self) -> bool:
        """Whether it is in a key set: it has a key, has not ended, and waits for no parent, nor for its time.

        One that waits for its time is in the key set of an order key.
        """
        waiting = LIMITED if self.is_limited else SCHEDULED
        return bool(self.key) and self.code in {READY, waiting, BLOCKED, RUNNING}

    def key_set(self, queue: str) -> bytes:
        """Return the name of its key set: that of an order key is per queue, that of a limit key per lane."""
        return b"\0%d" % self.lane + self.key if self.is_limited else queue.encode() + b"\0" + self.key

    @property
    def finished_at(self) -> int | None:
        """When it ended."""
        return self.span if self.code == COMPLETED else self.extra.finished_at


def unpack(record: bytes) -> Record:
    """Return the parts of a record."""
    head = HEAD.unpack_from(record)
    flags, at = head[1], HEAD.size
    lease: tuple[int, ...] = (0, 0, 0, 0)
    if flags & LEASED:
        lease = LEASE.unpack_from(record, at)
        at += LEASE.size
    key, extra = b"", NOTHING
    if flags & KEYED:
        (length,) = _SHORT.unpack_from(record, at)
        key = record[at + 2 : at + 2 + length]
        at += 2 + length
    if flags & EXTRA:
        (length,) = LONG.unpack_from(record, at)
        extra = _decode(record[at + 4 : at + 4 + length])
        at += 4 + length
    return Record._make((*head, *lease, key, extra, record[at:]))


def pack(record: Record) -> bytes:
    """Return the bytes of a record; its flags follow from its parts where they can."""
    leased = record.code in {RUNNING, COMPLETED}
    extra = packed_extra(record.extra)
    flags = record.flags & ~(LEASED | EXTRA) | (LEASED if leased else 0) | (EXTRA if extra else 0)
    counters = (min(record.interrupted, _MOST), min(record.lost, _MOST))
    parts = [HEAD.pack(record.code, flags, *counters, *record[4:12])]
    if leased:
        parts.append(LEASE.pack(*record[12:16]))
    if record.key:
        parts += (_SHORT.pack(len(record.key)), record.key)
    return b"".join((*parts, extra, record.body))


def packed_extra(extra: Extra) -> bytes:
    """Return it with its length in front; empty if there is nothing in it."""
    if extra == NOTHING:
        return b""
    text = _encode(extra)
    return LONG.pack(len(text)) + text


class _More(msgspec.Struct, array_like=True):
    """What follows the payload in a body."""

    headers: dict[str, str] | None = None
    timeout: float | None = None


_decode_more = msgspec.msgpack.Decoder(_More).decode


def pack_body(payload: str, headers: dict[str, str] | None, timeout: float | None) -> bytes:
    """Return the body of a job, with the payload's length in front."""
    text = payload.encode()
    more = _encode(_More(headers or None, timeout)) if headers or timeout is not None else b""
    return LONG.pack(len(text)) + text + more


def unpack_body(body: bytes) -> tuple[str, dict[str, str] | None, float | None]:
    """Return payload, headers and timeout."""
    end = 4 + LONG.unpack_from(body)[0]
    payload = body[4:end].decode()
    if len(body) == end:
        return payload, None, None
    more = _decode_more(body[end:])
    return payload, more.headers, more.timeout


def id_of(job_id: str) -> bytes:
    """Return the 16 bytes of a job's id."""
    return bytes.fromhex(job_id.replace("-", ""))


def text_of(id16: bytes) -> str:
    """Return a job's id."""
    text = id16.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def bucket(id16: bytes) -> bytes:
    """Return the key of the hash with all jobs whose ids were made in the same 65 seconds."""
    return b"j" + id16[:4]


def member(seq: int, id16: bytes) -> bytes:
    """Return a job as the sets of its states name it: equal scores are ordered by seq."""
    return _SEQ.pack(seq) + id16


def seq_of(member: bytes) -> int:
    """Return the seq of a member."""
    return int(_SEQ.unpack_from(member)[0])


def unpack_entry(entry: bytes) -> tuple[int, bytes]:
    """Return when a completed job ended, and its member, from its entry in the ledger of its lane and its id."""
    return int.from_bytes(entry[:7], "big"), b"\0\0" + entry[7:]


class Token(NamedTuple):
    """What a change is guarded by: the record as it was read, and the end of its lease."""

    record: bytes
    until: bytes | None


def token_of(row: JobRow) -> Token:
    """Return the token of a row that `lock` has returned."""
    assert isinstance(row.token, Token)  # noqa: S101
    return row.token


class Names(NamedTuple):
    """The names of a record's lane and worker."""

    queue: str
    task: str
    worker_id: str | None


def row_of(id16: bytes, text: bytes, names: Names, until: bytes | None = None, held: int = 0) -> JobRow:
    """Return a job as the rules know it."""
    record = unpack(text)
    runs = record.code == RUNNING
    has_ended = record.code >= COMPLETED
    return JobRow(
        id=text_of(id16),
        seq=record.seq,
        lane_id=record.lane,
        queue=names.queue,
        task=names.task,
        order_key=record.order_key,
        limit_key=record.limit_key,
        state=STATES[record.code],
        priority=record.priority,
        max_attempts=record.max_attempts,
        turn=record.turn,
        attempt=record.attempt,
        excused=record.excused,
        interrupted=record.interrupted,
        lost=record.lost,
        followed=bool(record.flags & FOLLOWED),
        retrying=bool(record.flags & RETRYING),
        isolated=bool(record.flags & ISOLATED),
        cancel_asked=bool(record.flags & ASKED),
        cancel_reason=record.extra.why if runs else None,
        fence=record.fence if runs else 0,
        worker_id=names.worker_id if runs else None,
        started_at=record.started_at if runs else None,
        lease_span=record.span if runs else None,
        finished_at=record.finished_at if has_ended else None,
        reason=record.extra.why if has_ended else None,
        held=held,
        token=Token(text, until),
    )


def flag(name: int, is_set: bool) -> int:
    """Return a flag or 0."""
    return name if is_set else 0


def changed(record: Record, **parts: Any) -> bytes:
    """Return the bytes of a record with other parts."""
    return pack(record._replace(**parts))
