"""The names of the threads that stores start.

A store's threads run only the store's own code, so a program without other threads may fork once the store is closed.
Every backend names its threads with `store_thread_name`, so that this can be checked for any store.
"""

from __future__ import annotations

import threading
from typing import Final

_PREFIX: Final = "holdfast-store-"


def store_thread_name(name: str) -> str:
    """Return the full name of a store's thread, such as "sqlite-watch"."""
    return _PREFIX + name


def is_store_thread(thread: threading.Thread) -> bool:
    """Return whether a store has started the thread."""
    return thread.name.startswith(_PREFIX)
