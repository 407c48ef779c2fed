"""Names that people choose: queues, tasks, workers, header names.

They are data, always bound as values and never part of a statement; still they are kept to a small alphabet, so that
they can stand in a URL, a metric, a file name and a terminal without quoting.
"""

from __future__ import annotations

import re

from holdfast.errors import ConfigError

MAX_NAME = 128
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:\-]*")


def check_name(kind: str, name: object) -> str:
    """Return `name`, or refuse it with a text that says what a `kind` may be called."""
    if not isinstance(name, str):
        message = f"{kind} name {name!r} is not a text"
        raise ConfigError(message)
    if len(name) > MAX_NAME:
        message = f"{kind} name {name[:40]!r}… has {len(name)} characters: at most {MAX_NAME} are allowed"
        raise ConfigError(message)
    if not _NAME.fullmatch(name):
        message = (
            f"{kind} name {name!r} is not allowed: begin with a letter or an underscore, "
            "then letters, digits and _ . : - (ASCII)"
        )
        raise ConfigError(message)
    return name
