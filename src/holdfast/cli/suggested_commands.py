"""Commands that the output suggests: shell-quoted, and with the options that select the same store and app."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

import click

_OPTIONS = "holdfast.repeated_options"
_QUOTED = re.compile(r"`(holdfast [^`]+)`")


def remember_options(words: Sequence[str]) -> None:
    """Record the options of the running command that every suggested command must repeat."""
    click.get_current_context().meta[_OPTIONS] = shlex.join(words)


def command(*words: str) -> str:
    """Return a command that can be pasted: `command("job", "show", job_id)` for the store and app in use."""
    return runnable(f"`{shlex.join(['holdfast', *words])}`")[1:-1]


def runnable(text: str) -> str:
    """Return `text` with every command in backticks made complete: `holdfast job list` gains `--url …`."""
    ctx = click.get_current_context(silent=True)
    options: str = "" if ctx is None else ctx.meta.get(_OPTIONS, "")
    if not options:
        return text
    return _QUOTED.sub(lambda found: f"`{_completed(found[1], options)}`", text)


def _completed(line: str, options: str) -> str:
    return line if line.endswith(f" {options}") else f"{line} {options}"
