"""Which values survive the round trip through JSON unchanged.

JSON libraries convert silently: NaN becomes null, bytes become base64, a set becomes a list. Here a value either
arrives as it was passed, or is rejected where it was passed, with its place inside the arguments and the remedy.
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

UNKNOWN: Any = object()  # the decoded value is not known: only values with a plain JSON form are accepted

_SCALARS = (Decimal, UUID, timedelta, date, time)
_BYTES = (bytes, bytearray, memoryview)
_SETS = (set, frozenset)
_IN_A_FIELD = "pass a dataclass whose field has that type, and decode to it"


class Refused(Exception):  # noqa: N818 - private to the codec; callers see PayloadError
    """A value cannot be encoded; its place is assembled while the exception propagates, so success costs nothing."""

    def __init__(self, reason: str, *, unannotated: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.unannotated = unannotated or reason
        """The reason with a remedy for values without a signature: the payload of an event, a result."""
        self.place = ""

    def within(self, step: str) -> Refused:
        """Prepend `step` to the place of the rejected value."""
        self.place = step + self.place
        return self

    @property
    def text(self) -> str:
        """The place, if the value is nested, and the reason."""
        return f"{self.place.removeprefix('.')}: {self.reason}" if self.place else self.reason


def is_model(cls: object) -> bool:
    """Return whether `cls` is a pydantic model, without importing pydantic."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(cls, type) and issubclass(cls, pydantic.BaseModel)


def check(value: Any, seen: Any, depth: int = 0) -> None:  # noqa: C901 - one branch per kind, the common ones first
    """Raise `Refused` if a value would not survive the round trip.

    `seen` is the decoded value, or UNKNOWN. A value with a richer type than JSON has (bytes, sets, dates, objects) must
    be decoded to that type. A value passed in its JSON form (a string for a UUID, a dict for a dataclass) may be
    decoded to a richer type.
    """
    kind = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is str:
        _check_text(value)
        if isinstance(seen, (datetime, time)):
            _check_aware(seen)
        elif isinstance(seen, _BYTES):
            raise Refused("a string would be decoded as base64 where bytes are expected: pass bytes")
    elif kind is int:
        if not MIN_INT <= value <= MAX_INT:
            raise Refused("the integer does not fit into 64 bits: pass it as a string")
    elif kind is float:
        if not math.isfinite(value):
            raise Refused(f"JSON cannot represent {value}: pass a finite number, or None")
    elif kind is bool or value is None or value is msgspec.UNSET:
        return
    elif depth >= MAX_DEPTH:
        raise Refused(f"the value is nested deeper than {MAX_DEPTH} levels or contains itself: pass a flatter one")
    elif issubclass(kind, (list, tuple)):
        _check_sequence(value, seen, depth + 1)
    elif issubclass(kind, dict):
        _check_dict(value, seen, depth + 1)
    else:
        _check_rich(value, seen, depth + 1)


def _check_text(text: str) -> None:
    if "\0" in text:
        raise Refused("a string with a NUL character cannot be stored: remove it, or encode the data as base64")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Refused(
                "a string with a lone surrogate is invalid Unicode: decode it with errors='replace'"
            ) from None


def _check_aware(moment: datetime | time) -> None:
    # A time in a zone with daylight saving has no offset without a date, but its zone is known.
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
                raise Refused("the annotated type has no such key: remove it")  # noqa: TRY301
        except Refused as refused:
            raise refused.within(f".{key}" if type(key) is str else f"[{key!r}]") from None


def _check_key(key: Any, arrives: dict[Any, Any] | None, depth: int) -> None:
    if key is None or isinstance(key, (bool, tuple)):
        raise Refused(f"{key!r} cannot be a key in JSON: convert it to a str")
    check(key, key, depth)
    if arrives is None or key not in arrives:
        fault = f"the key {key!r} is not a string and would arrive as one"
        raise Refused(
            f"{fault}: annotate the keys, for example dict[{type(key).__name__}, Any], or convert them to str",
            unannotated=f"{fault}: convert the keys to str, or {_IN_A_FIELD}",
        )


def _check_rich(value: Any, seen: Any, depth: int) -> None:  # noqa: C901 - one branch per kind
    if isinstance(value, (datetime, time)):
        _check_aware(value)
        _check_arrives(value, seen)
    elif isinstance(value, _SCALARS):
        if isinstance(value, Decimal) and not value.is_finite():
            raise Refused(f"the Decimal {value} is not finite: pass a finite one, or None")
        _check_arrives(value, seen)
    elif isinstance(value, _BYTES):
        if not isinstance(seen, _BYTES):
            fault = "bytes would arrive as a string"
            raise Refused(
                f"{fault}: annotate the parameter as bytes, or pass a string",
                unannotated=f"{fault}: pass a string, or {_IN_A_FIELD}",
            )
    elif isinstance(value, _SETS):
        if not isinstance(seen, _SETS):
            fault = "a set would arrive as a list"
            raise Refused(
                f"{fault}: annotate the parameter, for example as set[int], or pass a sorted list",
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
            f"{_name(value)} cannot be encoded as JSON: pass plain values, a dataclass, or an id to load it by"
        )
    _check_arrives(value, seen)
    for name in names:
        item = getattr(value, name, None)
        try:
            # The object's class annotates its fields, so their types are known even if the object's is not.
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
        f"{_name(value)} would arrive as {_name(seen)}: annotate the parameter as {_name(value)}, or pass {_name(seen)}"
    )


def _member(item: Any, seen: Any) -> Any:
    """Return the decoded value of a set's item; sets have no order, so it is looked up."""
    if isinstance(seen, _SETS):
        try:
            return item if item in seen else UNKNOWN
        except TypeError:  # a list inside the list that becomes a set: msgspec decodes it as a tuple
            return UNKNOWN
    return UNKNOWN


def _name(value: Any) -> str:
    return type(value).__qualname__


def plain(values: Mapping[str, Any]) -> bool:
    """Return whether all values are plain scalars that need no check except for NUL characters."""
    for value in values.values():
        kind = type(value)  # pyright: ignore[reportUnknownVariableType]
        if kind is int:
            if not MIN_INT <= value <= MAX_INT:
                return False
        elif kind is not str and kind is not bool and value is not None:
            return False
    return True
