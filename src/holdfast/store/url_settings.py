"""The default URL of a store, and the settings after the `?` of a URL."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from holdfast.errors import ConfigError

DEFAULT_URL = "sqlite:///holdfast.db"


class Setting(NamedTuple):
    """A setting: the form of its values, shown in errors, the pattern that they match, and what reads them."""

    form: str
    pattern: str
    read: Callable[[str], Any] = str


SECONDS = Setting("<seconds>", r"[0-9]{1,6}(\.[0-9]{0,6})?|\.[0-9]{1,6}", float)
POSITIVE_SECONDS = SECONDS._replace(pattern=f"(?=.*[1-9])({SECONDS.pattern})")


def read_settings(given: Iterable[tuple[str, str]], known: Mapping[str, Setting], where: str) -> dict[str, Any]:
    """Return the values of the given settings; raises `ConfigError`, with those that are supported, for an invalid one.

    `where` is the URL as it may be shown.
    """
    found: dict[str, Any] = {}
    for name, text in given:
        setting = known.get(name)
        if setting is None or not re.fullmatch(setting.pattern, text):
            supported = ", ".join(f"{name}={setting.form}" for name, setting in known.items())
            message = f"{where}: invalid setting {name}={text}; supported: {supported}"
            raise ConfigError(message)
        found[name] = setting.read(text)
    return found
