"""Which processes of a run have a file open, as far as this system shows."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.torture.recorder import RUN


def processes_with(path: Path) -> int:
    """Return how many processes of runs, but this one, have a file open; 0 where there is no /proc."""
    return sum(
        RUN.encode() in _environment(process) and any(_leads_to(path, link) for link in _links(process))
        for process in Path("/proc").glob("[0-9]*")
        if process.name != str(os.getpid())
    )


def _environment(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:  # it has ended, or is another user's
        return b""


def _links(process: Path) -> list[Path]:
    try:
        return list((process / "fd").iterdir())
    except OSError:
        return []


def _leads_to(path: Path, link: Path) -> bool:
    try:
        return link.samefile(path)
    except OSError:
        return False
