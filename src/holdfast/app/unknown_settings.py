"""Settings that do not exist: what may have been meant, and what there is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from holdfast.errors import ConfigError


def refuse_unknown(where: str, given: Iterable[str], known: Sequence[str]) -> None:
    """Raise `ConfigError` for the first name that is not known, with the likeliest one that is."""
    for name in given:
        if name not in known:
            listed = ", ".join(known)
            close = get_close_matches(name.lower(), known, 1)
            there_are = f"did you mean {close[0]}? There are {listed}" if close else f"there are {listed}"
            raise ConfigError(f"{where}: there is no setting {name}: {there_are}")
