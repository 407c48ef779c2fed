"""A file that one process can lock, until it ends in whatever way."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def held_file(path: Path) -> Generator[None]:
    """Lock a file, created if need be, and remove it afterwards; raises `BlockingIOError` if a process has locked it.

    The kernel unlocks it when the process ends, so a file that is left behind blocks no other.
    """
    descriptor = _held(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # still locked: the next process sees that this file is gone
        os.close(descriptor)


def _held(path: Path) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(path, descriptor):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # it was removed meanwhile: the next one is another file


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
