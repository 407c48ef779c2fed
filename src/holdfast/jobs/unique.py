"""The options of unique jobs: `unique_key` or `unique`, `unique_for`, `on_conflict`."""

from __future__ import annotations

import hashlib
from binascii import b2a_base64
from collections.abc import Callable, Mapping
from datetime import timedelta
from inspect import Parameter, signature
from typing import Any, Literal, cast, get_args

import msgspec

from holdfast.errors import ConfigError
from holdfast.model.conditions import OnConflict, Unique, UniqueScope
from holdfast.model.duration import to_span
from holdfast.model.names import check_key
from holdfast.runtime.payload import encode_sorted
from holdfast.runtime.signature import Signature

UniqueFor = Literal["waiting", "unfinished"] | float | timedelta
OnConflictName = Literal["keep", "replace", "raise"]
_SHORT = 48  # bytes of JSON that are a key as they are
_SCOPES = "'waiting', 'unfinished' or a period, in seconds or as a timedelta"


class UniqueSetting(msgspec.Struct, frozen=True):
    """The checked options; `key` is None if the arguments are the key."""

    key: str | None
    scope: UniqueScope = UniqueScope.UNFINISHED
    on_conflict: OnConflict = OnConflict.KEEP
    period: timedelta | None = None


def unique_setting(given: Mapping[str, Any], default: UniqueSetting | None = None) -> UniqueSetting | None:
    """Check the options of a job or a task, those that are not None; each overrides that of the default."""
    wanted, key = given.get("unique"), given.get("unique_key")
    if wanted is not None and not isinstance(wanted, bool):
        raise ConfigError(f"unique={wanted!r} is neither True nor False: to choose the key yourself, pass unique_key=…")
    if wanted is not None and key is not None:
        message = "unique and unique_key are both given: unique=True makes a key of the arguments; choose one"
        raise ConfigError(message)
    setting = default
    if wanted is False:
        setting = None
    elif wanted or key is not None:
        base = default or UniqueSetting(None)
        setting = msgspec.structs.replace(base, key=None if key is None else check_key("unique_key", key))
    others = [name for name in ("unique_for", "on_conflict") if given.get(name) is not None]
    if setting is None:
        if others:
            raise ConfigError(f"{others[0]}= has no effect without a unique key: add unique_key=… or unique=True")
        return None
    if "unique_for" in others:
        scope, period = _checked_scope(given["unique_for"])
        setting = msgspec.structs.replace(setting, scope=scope, period=period)
    if "on_conflict" in others:
        setting = msgspec.structs.replace(setting, on_conflict=_checked_conflict(given["on_conflict"]))
    return setting


def _checked_scope(value: object) -> tuple[UniqueScope, timedelta | None]:
    if isinstance(value, str):
        if value not in (UniqueScope.WAITING, UniqueScope.UNFINISHED):
            raise ConfigError(f"unique_for={value!r} is unknown: pass {_SCOPES}")
        return UniqueScope(value), None
    if not isinstance(value, (int, float, timedelta)) or isinstance(value, bool):
        raise ConfigError(f"unique_for={value!r} is unknown: pass {_SCOPES}")
    period = to_span(value, "unique_for")
    if period <= timedelta(0):
        raise ConfigError(f"unique_for={value!r} is not a period: pass {_SCOPES}")
    return UniqueScope.PERIOD, period


def _checked_conflict(value: object) -> OnConflict:
    if value not in get_args(OnConflictName):
        raise ConfigError(f"on_conflict={value!r} is unknown: pass 'keep', 'replace' or 'raise'")
    return OnConflict(cast("str", value))


def unique_of(setting: UniqueSetting, signed: Signature, handler: Callable[..., Any]) -> Callable[[str], Unique]:
    """Return the function that gives the unique key of a job by its payload."""
    if setting.key is not None:
        unique = Unique(setting.key, setting.scope, setting.on_conflict, setting.period)
        return lambda _: unique
    defaults = _defaults(handler)

    def by_arguments(payload: str) -> Unique:
        return Unique(_arguments_key(payload, signed, defaults), setting.scope, setting.on_conflict, setting.period)

    return by_arguments


def _defaults(handler: Callable[..., Any]) -> dict[str, bytes]:
    """Return the defaults of a handler as JSON; one that cannot be encoded equals no argument."""
    found: dict[str, bytes] = {}
    for name, parameter in signature(handler).parameters.items():
        if parameter.default is not Parameter.empty:
            try:
                found[name] = encode_sorted(parameter.default)
            except Exception:  # noqa: BLE001, S112 - whatever a class raises that has no form as JSON
                continue
    return found


def _arguments_key(payload: str, signed: Signature, defaults: Mapping[str, bytes]) -> str:
    """Return the same key for calls between which the handler sees no difference.

    The arguments are decoded to their annotated types, so that 1 is 1.0 for a float; names are sorted, and an argument
    that is given its default counts as not given.

    Few arguments are the key as they are. Ids that grow then make keys that grow, which lie together in the store's
    index: a thousand hashes would be written to almost as many of its pages. `shown_unique_key` recognises both.
    """
    args, kwargs = signed.decode(payload)
    for name in defaults.keys() & kwargs.keys():
        if encode_sorted(kwargs[name]) == defaults[name]:
            del kwargs[name]
    data = encode_sorted((args, kwargs) if args else kwargs)
    if len(data) <= _SHORT:
        return data.decode()
    return f"args-{b2a_base64(hashlib.blake2b(data, digest_size=12).digest(), newline=False).decode()}"
