"""The error for an unknown setting: the closest match, and all settings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Final

from holdfast.errors import ConfigError

_RENAMED: Final = {"patience": "release_timeout"}  # names of earlier versions


def refuse_unknown(where: str, given: Iterable[str], known: Sequence[str]) -> None:
    """Raise `ConfigError` for the first name that is not known, with its new name or the closest match."""
    for name in given:
        if name not in known:
            listed = ", ".join(known)
            renamed = _RENAMED.get(name)
            if renamed in known:
                raise ConfigError(f"{where}: the setting {name} is called {renamed} now")
            close = get_close_matches(name.lower(), known, 1)
            there_are = f"did you mean {close[0]}? There are {listed}" if close else f"there are {listed}"
            raise ConfigError(f"{where}: there is no setting {name}: {there_are}")
