"""Rows in the binary format of COPY: encoded by hand, since for large batches this is most of the CPU time."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from holdfast.model.job import NewJob, unique_of
from holdfast.store.verbs.placing import Row

_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TRAILER = b"\xff\xff"
_NULL = b"\xff\xff\xff\xff"
_ROWS_AT_A_TIME = 1_000

_encode = msgspec.json.encode
_length = struct.Struct("!i").pack
_float = struct.Struct("!id").pack
_long = struct.Struct("!iq").pack
_EVENT_HEAD = struct.Struct("!hiiiiiqi").pack  # 10 columns: category_id, partition_id, position_id, length of stream
_EVENT_MIDDLE = struct.Struct("!iqi16si").pack  # version, event_id, length of event_name
_JOB_HEAD = struct.Struct("!hiqi16sii").pack  # 13 columns: seq, id, lane_id
_JOB_TAIL = struct.Struct("!iqiqii").pack  # enqueued_at, turn, payload_bytes
_JOB_MIDDLE = struct.Struct("!iiii").pack  # priority, max_attempts
_READY = struct.Struct("!hiiiqiqii").pack  # lane_id, turn, seq, payload_bytes
_SCHEDULED = struct.Struct("!hiqiqi?").pack  # run_at, seq, retrying


def job_row(job: NewJob, seq: int, lane_id: int, payload: bytes, enqueued_at: int, turn: int) -> bytes:
    """Return a row of job; `payload` is encoded already, because its length is needed elsewhere, too."""
    headers = _encode(job.headers) if job.headers else None
    unique = unique_of(job)
    return b"".join(
        (
            _JOB_HEAD(13, 8, seq, 16, bytes.fromhex(job.id.replace("-", "")), 4, lane_id),
            _length(len(payload)),
            payload,
            _NULL if headers is None else _length(len(headers)) + headers,
            _JOB_MIDDLE(4, job.priority, 4, job.max_attempts),
            _NULL if job.timeout is None else _float(8, job.timeout),
            _JOB_TAIL(8, enqueued_at, 8, turn, 4, len(payload)),
            _NULL + _NULL if unique is None else _text(unique.key) + _text(unique.scope),
        )
    )


def _text(text: str) -> bytes:
    data = text.encode()
    return _length(len(data)) + data


def ready_row(lane_id: int, turn: int, seq: int, payload_bytes: int) -> bytes:
    """Return a row of ready."""
    return _READY(4, 4, lane_id, 8, turn, 8, seq, 4, payload_bytes)


def scheduled_row(run_at: int, seq: int) -> bytes:
    """Return a row of scheduled, for a job that its caller delayed."""
    return _SCHEDULED(3, 8, run_at, 8, seq, 1, False)


def event_row(row: Row) -> bytes:
    """Return a row of event."""
    category_id, partition_id, position, stream_name, version, event_id, event_name, text, headers_text, recorded_at = (
        row
    )
    stream_data, name, payload = stream_name.encode(), event_name.encode(), text.encode()
    headers = None if headers_text is None else headers_text.encode()
    return b"".join(
        (
            _EVENT_HEAD(10, 4, category_id, 4, partition_id, 8, position, len(stream_data)),
            stream_data,
            _EVENT_MIDDLE(8, version, 16, bytes.fromhex(event_id.replace("-", "")), len(name)),
            name,
            _length(len(payload)),
            payload,
            _NULL if headers is None else _length(len(headers)) + headers,
            _long(8, recorded_at),
        )
    )


def stream(rows: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the input of COPY in chunks of rows; rows are encoded only when needed."""
    yield _HEADER
    left = iter(rows)
    while some := b"".join(islice(left, _ROWS_AT_A_TIME)):
        yield some
    yield _TRAILER
