"""Ids made by the client: UUIDv7, strictly increasing within a process.

The client makes the id, so an enqueue whose reply was lost can be repeated with the same id without
making a second job. Within a process ids grow, so inserts go to the right edge of the store's index.
"""

from __future__ import annotations

import os
import re
import secrets
import struct
import threading
import time
from typing import cast
from uuid import UUID

from holdfast.errors import ConfigError, JobNotFound

_RANDOM_BITS = 74  # what RFC 9562 leaves after time, version and variant
_LOW = (1 << 48) - 1  # the last twelve digits
_STEP_BITS = 32  # random distance between neighbours: the next id cannot be guessed from the last
_SHOWN = 40  # characters of what somebody took for an id
_CANONICAL = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class _Sequence:
    """The last id given out, as a millisecond and 74 random bits that only grow within it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reseed()

    def _reseed(self) -> None:
        self._millisecond = 0
        self._tail = 0

    def after_fork(self) -> None:
        """Forget the parent's place, lest parent and child give out the same ids."""
        self._lock = threading.Lock()
        self._reseed()

    def take(self, count: int) -> list[str]:
        """Return `count` new ids in increasing order."""
        with self._lock:
            now = time.time_ns() // 1_000_000
            if now > self._millisecond:
                self._millisecond = now
                self._tail = secrets.randbits(_RANDOM_BITS - 1)  # top bit clear: room to count upwards
            millisecond, tail = self._millisecond, self._tail
            ids: list[str] = []
            low = tail & _LOW
            head = _head(millisecond, tail)
            for step in struct.unpack(f"{count}I", secrets.token_bytes(4 * count)):
                low += 1 + step
                if low > _LOW:  # carry into the digits before the last dash
                    tail = (tail & ~_LOW) + low
                    if tail >> _RANDOM_BITS:
                        millisecond += 1
                        tail &= (1 << (_RANDOM_BITS - 1)) - 1
                    low = tail & _LOW
                    head = _head(millisecond, tail)
                ids.append(f"{head}{low:012x}")
            self._millisecond, self._tail = millisecond, (tail & ~_LOW) | low
            return ids


def _head(millisecond: int, tail: int) -> str:
    """Return all but the last twelve digits: the same for some ten thousand ids in a row."""
    high = f"{millisecond:012x}"
    third = 0x7000 | (tail >> 62)
    fourth = 0x8000 | ((tail >> 48) & 0x3FFF)
    return f"{high[:8]}-{high[8:]}-{third:04x}-{fourth:04x}-"


_sequence = _Sequence()
os.register_at_fork(after_in_child=_sequence.after_fork)


def new_id() -> str:
    """Return a new UUIDv7 in canonical text form."""
    return _sequence.take(1)[0]


def new_ids(count: int) -> list[str]:
    """Return `count` new UUIDv7s, strictly increasing."""
    return _sequence.take(count)


def id_text(given: str | UUID) -> str:
    """Return an id that a caller names something by, as the text under which it is stored."""
    if not isinstance(cast("object", given), (str, UUID)):
        message = f"id {given!r} is neither a text nor a UUID: pass the id that an enqueue returned or a list shows"
        raise ConfigError(message)
    return str(given).lower()


def is_id(text: str) -> bool:
    """Tell whether a text is a UUID in canonical form, as all ids are. Stores do not agree on what else is one."""
    return _CANONICAL.fullmatch(text) is not None


def find_by(given: str | UUID) -> str:
    """Return the id of a job to ask the store for; raises `JobNotFound` for what no job can have as its id."""
    text = id_text(given)
    if not is_id(text):
        shown = repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}…"
        remedy = "pass the id that an enqueue returned or a list shows"
        raise JobNotFound(f"no job has the id {shown}, nor can have it: ids look like {new_id()}; {remedy}")
    return text


def check_id(job_id: str) -> str:
    """Return a caller's own job id in canonical form, or refuse it."""
    canonical = job_id.lower()
    if not is_id(canonical):
        message = f"job id {job_id!r} is not a UUID: pass one like {new_id()!r}, or leave it out"
        raise ConfigError(message)
    return canonical
