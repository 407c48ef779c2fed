"""User-chosen names: queues, tasks, workers, headers.

Names are always bound as values and never become part of a statement. They are limited to a small alphabet so that they
need no quoting in a URL, a metric, a file name or a shell.
"""

from __future__ import annotations

import re
from functools import lru_cache

from holdfast.errors import ConfigError

MAX_NAME = 128
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:\-]*")


@lru_cache(1024)  # an append checks two names for each of its events, mostly the same: 0.3 of 3 us
def _is_valid(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def check_name(kind: str, name: object) -> str:
    """Return `name` if it is valid; otherwise raise `ConfigError` with the rule, naming it a `kind`."""
    if not isinstance(name, str):
        message = f"{kind} name {name!r} is not a string: pass a str"
        raise ConfigError(message)
    if len(name) > MAX_NAME:
        message = f"{kind} name {name[:40]!r}… has {len(name)} characters: use at most {MAX_NAME}"
        raise ConfigError(message)
    if not _is_valid(name):
        message = (
            f"{kind} name {name!r} is invalid: start with an ASCII letter or an underscore, "
            "followed by ASCII letters, digits and _ . : -"
        )
        raise ConfigError(message)
    return name


def check_key(option: str, key: object) -> str:
    """Return a valid order, limit or unique key or raise `ConfigError`: a text that every store can hold."""
    if not isinstance(key, str):
        message = f"{option}={key!r} is not a string: pass one, as in {option}='customer-3'"
        raise ConfigError(message)
    if not key:
        message = f"{option}='' is empty: leave it out for a job without {option.replace('_', ' ')}"
        raise ConfigError(message)
    if len(key) > MAX_NAME:
        message = f"{option}={key[:40]!r}… has {len(key)} characters: at most {MAX_NAME} are allowed"
        raise ConfigError(message)
    if "\0" in key or any("\ud800" <= sign <= "\udfff" for sign in key):
        message = f"{option}={key!r} contains a NUL or a lone surrogate, which stores cannot hold as text"
        raise ConfigError(message)
    return key
