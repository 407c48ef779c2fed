"""A file that one process alone may hold, however it ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def held_file(path: Path) -> Generator[None]:
    """Hold a file, made if need be, and remove it afterwards; raises `BlockingIOError` if somebody else holds it.

    The kernel lets go of it when the process ends. A file that is left behind then holds nobody up.
    """
    descriptor = _held(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # still held: whoever waits for the next one sees that this one is gone
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
        os.close(descriptor)  # its last holder has removed it meanwhile: the next one is another file


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
