"""Which values can travel: JSON on the wire, and the same values again at the other end.

JSON libraries are polite: they write NaN as null, bytes as base64, a set as a list, and say nothing. Here a value
either arrives as what it was, or is refused where it was given, with the place inside the arguments and the remedy.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_DEPTH = 64
MIN_INT = -(2**63)
MAX_INT = 2**64 - 1

UNKNOWN: Any = object()  # nothing is known of what arrives: only what has a plain JSON form may pass

_SCALARS = (Decimal, UUID, timedelta, date, time)
_BYTES = (bytes, bytearray, memoryview)
_SETS = (set, frozenset)
_IN_A_FIELD = "pass a dataclass whose field has that type, and decode to it"


class Refused(Exception):  # noqa: N818 - private to the codec; callers see PayloadError
    """A value cannot travel; the place is put together on the way out, so that the good case pays nothing for it."""

    def __init__(self, reason: str, *, unannotated: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.unannotated = unannotated or reason
        """The reason with a remedy for what no signature describes: the payload of an event, a result."""
        self.place = ""

    def within(self, step: str) -> Refused:
        """Note that the refused value lies at `step` of what is being checked."""
        self.place = step + self.place
        return self

    @property
    def text(self) -> str:
        """The place, if it is inside something, and the reason."""
        return f"{self.place.removeprefix('.')}: {self.reason}" if self.place else self.reason


def is_model(cls: object) -> bool:
    """Return whether `cls` is a pydantic model; pydantic is not imported for it."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(cls, type) and issubclass(cls, pydantic.BaseModel)


def check(value: Any, seen: Any, depth: int = 0) -> None:  # noqa: C901 - one branch per kind, the common ones first
    """Refuse a value that cannot travel.

    `seen` is what arrives for it, or UNKNOWN. What is richer than JSON (bytes, sets, dates, objects) must arrive as
    itself; what is given in its JSON form (a text for a UUID, a dict for a dataclass) may arrive as something richer.
    """
    kind = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is str:
        _check_text(value)
        if isinstance(seen, (datetime, time)):
            _check_aware(seen)
        elif isinstance(seen, _BYTES):
            raise Refused("a text would be read as base64 where bytes are expected: pass bytes")
    elif kind is int:
        if not MIN_INT <= value <= MAX_INT:
            raise Refused("an integer beyond 64 bits cannot be carried: pass it as a text")
    elif kind is float:
        if not math.isfinite(value):
            raise Refused(f"{value} has no form in JSON: pass a finite number, or None")
    elif kind is bool or value is None or value is msgspec.UNSET:
        return
    elif depth >= MAX_DEPTH:
        raise Refused(f"nested deeper than {MAX_DEPTH}, or within itself: pass something flatter")
    elif issubclass(kind, (list, tuple)):
        _check_sequence(value, seen, depth + 1)
    elif issubclass(kind, dict):
        _check_dict(value, seen, depth + 1)
    else:
        _check_rich(value, seen, depth + 1)


def _check_text(text: str) -> None:
    if "\0" in text:
        raise Refused("a text with a NUL character cannot be stored: remove it, or encode the data as base64")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Refused("a text with a lone surrogate is no Unicode: decode it with errors='replace'") from None


def _check_aware(moment: datetime | time) -> None:
    # A time whose zone has daylight saving knows no offset without a date, yet it says which zone it means.
    if moment.tzinfo is None or (isinstance(moment, datetime) and moment.utcoffset() is None):
        raise Refused(f"{moment.isoformat()} has no time zone: pass an aware one, for example with tzinfo=UTC")


def _check_sequence(value: list[Any] | tuple[Any, ...], seen: Any, depth: int) -> None:
    if hasattr(value, "_fields"):
        _check_arrives(value, seen)
    paired = isinstance(seen, (list, tuple)) and len(cast("list[Any]", seen)) == len(value)
    for index, item in enumerate(value):
        try:
            check(item, seen[index] if paired else _member(item, seen), depth)
        except Refused as refused:
            raise refused.within(f"[{index}]") from None


def _check_dict(value: dict[Any, Any], seen: Any, depth: int) -> None:
    arrives: dict[Any, Any] | None = seen if issubclass(type(seen), dict) else None
    for key, item in value.items():
        try:
            if type(key) is str:
                _check_text(key)
            else:
                _check_key(key, arrives, depth)
            if arrives is None:
                check(item, getattr(seen, key, UNKNOWN) if type(key) is str else UNKNOWN, depth)
            elif key in arrives:
                check(item, arrives[key], depth)
            else:
                raise Refused("the annotated type has no such key, so it would not arrive: leave it out")  # noqa: TRY301
        except Refused as refused:
            raise refused.within(f".{key}" if type(key) is str else f"[{key!r}]") from None


def _check_key(key: Any, arrives: dict[Any, Any] | None, depth: int) -> None:
    if key is None or isinstance(key, (bool, tuple)):
        raise Refused("a key is a text, a number or something with a text of its own: make it str")
    check(key, key, depth)
    if arrives is None or key not in arrives:
        fault = f"the key {key!r} is no text and would arrive as one"
        raise Refused(
            f"{fault}: annotate the keys, for example dict[{type(key).__name__}, Any], or make them str",
            unannotated=f"{fault}: make the keys str, or {_IN_A_FIELD}",
        )


def _check_rich(value: Any, seen: Any, depth: int) -> None:  # noqa: C901 - one branch per kind
    if isinstance(value, (datetime, time)):
        _check_aware(value)
        _check_arrives(value, seen)
    elif isinstance(value, _SCALARS):
        if isinstance(value, Decimal) and not value.is_finite():
            raise Refused(f"the decimal {value} is not finite: pass a finite one, or None")
        _check_arrives(value, seen)
    elif isinstance(value, _BYTES):
        if not isinstance(seen, _BYTES):
            fault = "bytes would arrive as a text"
            raise Refused(
                f"{fault}: annotate it as bytes, or pass a text", unannotated=f"{fault}: pass a text, or {_IN_A_FIELD}"
            )
    elif isinstance(value, _SETS):
        if not isinstance(seen, _SETS):
            fault = "a set would arrive as a list"
            raise Refused(
                f"{fault}: annotate it, for example as set[int], or pass a sorted list",
                unannotated=f"{fault}: pass a sorted list, or {_IN_A_FIELD}",
            )
        for item in cast("set[Any]", value):
            check(item, _member(item, seen), depth)
    elif isinstance(value, Enum):
        check(value.value, UNKNOWN, depth)
        if seen != value:
            _check_arrives(value, seen)
    elif is_model(cast("object", type(value))):
        check(value.model_dump(mode="json", by_alias=True), UNKNOWN, depth)
        _check_arrives(value, seen)
    else:
        _check_object(value, seen, depth)


def _check_object(value: Any, seen: Any, depth: int) -> None:
    names = _field_names(value)
    if names is None:
        raise Refused(
            f"{_name(value)} cannot be carried as JSON: pass plain values, a dataclass or an id to load it by"
        )
    _check_arrives(value, seen)
    for name in names:
        item = getattr(value, name, None)
        try:
            # An object's own class annotates its fields, so they are known even where the object is not.
            check(item, item if seen is UNKNOWN else getattr(seen, name, UNKNOWN), depth)
        except Refused as refused:
            raise refused.within(f".{name}") from None


def _field_names(value: Any) -> tuple[str, ...] | None:
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    if dataclasses.is_dataclass(value):
        return tuple(field.name for field in dataclasses.fields(value))
    attrs = getattr(value, "__attrs_attrs__", None)
    return None if attrs is None else tuple(attribute.name for attribute in attrs)


def _check_arrives(value: Any, seen: Any) -> None:
    if seen is UNKNOWN or isinstance(seen, type(value)):
        return
    if isinstance(seen, _SCALARS) and isinstance(value, type(seen)):  # a subclass of datetime arrives as a datetime
        return
    raise Refused(
        f"{_name(value)} would arrive as {_name(seen)}: annotate it as {_name(value)}, or pass it as {_name(seen)}"
    )


def _member(item: Any, seen: Any) -> Any:
    """Return what arrives for an item of a set: sets have no order, so it is looked up."""
    if isinstance(seen, _SETS):
        try:
            return item if item in seen else UNKNOWN
        except TypeError:  # a list inside the list that becomes a set: msgspec made it a tuple
            return UNKNOWN
    return UNKNOWN


def _name(value: Any) -> str:
    return type(value).__qualname__


def plain(values: Mapping[str, Any]) -> bool:
    """Return whether all values are plain scalars that need no further check, once their text is free of NUL."""
    for value in values.values():
        kind = type(value)  # pyright: ignore[reportUnknownVariableType]
        if kind is int:
            if not MIN_INT <= value <= MAX_INT:
                return False
        elif kind is not str and kind is not bool and value is not None:
            return False
    return True
