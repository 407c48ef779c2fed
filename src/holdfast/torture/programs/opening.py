"""Start and end of every program of a run."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol, TypeVar

import msgspec

from holdfast.runtime.parent_death import die_with
from holdfast.torture.recorder import recorder


class _Settings(Protocol):
    @property
    def parent(self) -> int: ...


S = TypeVar("S", bound=_Settings)


@contextmanager
def opened(kind: type[S]) -> Generator[S]:
    """Read the settings, exit with the conductor, leave Ctrl-C on the terminal to it, and record until the end."""
    settings = msgspec.json.decode(sys.argv[1], type=kind)
    die_with(settings.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(process)d %(levelname)s %(message)s")
    recorder.open()
    yield settings
    recorder.close()  # not after an error: the history must not show a clean exit
