"""Whole numbers as callers pass them."""

from __future__ import annotations

from holdfast.errors import ConfigError

_PRINTABLE_BITS = 128


def whole_number(value: object, what: str, least: int, most: int) -> int:
    """Return a whole number within bounds; raise `ConfigError`, naming the setting `what`, if the value is not one."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        shown = "…" if is_vast(value) else repr(value)
        raise ConfigError(f"{what}={shown} is not a whole number from {least} to {most}")
    return value


def is_vast(value: object) -> bool:
    """Return whether this is an int with more digits than anyone reads: Python refuses to print thousands of them."""
    return isinstance(value, int) and value.bit_length() > _PRINTABLE_BITS
