"""What each process has for itself: a forked child makes its own, and never uses or closes what its parent has made."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar
from weakref import WeakSet

T = TypeVar("T")

_making = threading.Lock()
_inherited: list[object] = []  # kept until the process ends: a destructor would close the parent's connections
_all: WeakSet[PerProcess[Any]] = WeakSet()
_refusal: Callable[[], Exception] | None = None


@contextmanager
def refusing(error: Callable[[], Exception]) -> Generator[None]:
    """Let every use of every such object, in any thread, raise `error()` while the block runs; not for nested blocks.

    Those that were made before are put aside, so that the usual look at an object costs nothing more.
    """
    global _refusal  # noqa: PLW0603 - it applies to the whole process
    with _making:
        _refusal = error
        aside = [(each, each.put_aside()) for each in _all]
    try:
        yield
    finally:
        with _making:
            _refusal = None
            for each, held in aside:
                each.put_back(held)


def check_usable() -> None:
    """Raise the error of the surrounding `refusing` block, if there is one."""
    if _refusal is not None:
        raise _refusal()


def _start_afresh() -> None:
    """Replace the lock in a forked child: another thread of the parent may have held it."""
    global _making  # noqa: PLW0603 - one lock per process
    _making = threading.Lock()


os.register_at_fork(after_in_child=_start_afresh)


class PerProcess(Generic[T]):
    """Holds an object of this process, made at its first use; safe in threads."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._held: tuple[int, T] | None = None
        _all.add(self)

    @property
    def here(self) -> T:
        """The object of this process."""
        held = self._held
        if held is not None and held[0] == os.getpid():
            return held[1]
        check_usable()
        with _making:
            held = self._held
            if held is None or held[0] != os.getpid():
                if held is not None:
                    _inherited.append(held)
                held = self._held = (os.getpid(), self._make())
        return held[1]

    @property
    def made(self) -> T | None:
        """The object of this process if it was made, else None."""
        held = self._held
        return held[1] if held is not None and held[0] == os.getpid() else None

    def put_aside(self) -> tuple[int, T] | None:
        """Return what is held and forget it; for `refusing`."""
        held, self._held = self._held, None
        return held

    def put_back(self, held: tuple[int, T] | None) -> None:
        """Hold again what was put aside."""
        self._held = self._held or held

    def take(self) -> T | None:
        """Return the object of this process, for its end, and forget it; None if there is none."""
        held, self._held = self._held, None
        if held is not None and held[0] != os.getpid():
            _inherited.append(held)
            return None
        return None if held is None else held[1]
