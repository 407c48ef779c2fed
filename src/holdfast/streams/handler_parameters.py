"""What the handler of a consumer takes: an event or a list of them, and a context if it wants one.

They are handed over by their place, so an annotation that says something else than its place would be believed by the
reader and by nobody else: it is refused where the consumer is declared.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Collection, Iterable, Sequence
from inspect import Parameter
from typing import Any, Final

import msgspec

from holdfast.errors import ConfigError
from holdfast.runtime.parameters import names_known_to
from holdfast.streams.context import EventContext
from holdfast.streams.event import Event

_PLAIN: Final = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_BATCHES: Final = (list, tuple, Sequence, Collection, Iterable)
_SILENT: Final[tuple[Any, ...]] = (Parameter.empty, Any, object)  # annotations that say nothing
_KNOWN: Final = {kind.__name__: kind for kind in (Event, EventContext, Sequence, Collection, Iterable)}


class HandlerParameters(msgspec.Struct, frozen=True):
    """Whether a handler takes its events in batches, whether its annotation says so, and whether it takes a context."""

    takes_batch: bool
    says_which: bool
    takes_context: bool


def read_handler(consumer: str, call: Callable[..., Any]) -> HandlerParameters:
    """Return what a handler takes; raises `ConfigError` if it cannot be called so, or its annotations say otherwise."""
    scope = _KNOWN | names_known_to(call)
    given = [
        (parameter, _resolved(parameter.annotation, scope)) for parameter in inspect.signature(call).parameters.values()
    ]
    needed = [
        parameter
        for place, (parameter, hint) in enumerate(given)
        if parameter.default is Parameter.empty or (place == 1 and _is_a(hint, EventContext))
    ]
    if not 1 <= len(needed) <= 2 or any(parameter.kind not in _PLAIN for parameter in needed):  # noqa: PLR2004
        message = (
            f"consumer {consumer!r}: its handler takes an event (or a list of them) and, if it wants one, a context"
        )
        raise ConfigError(message)
    hints = [hint for parameter, hint in given if parameter in needed]
    names = [parameter.name for parameter in needed]
    takes_batch = _is_batch(hints[0])
    _check_first(consumer, names[0], hints[0], takes_batch=takes_batch)
    if len(needed) > 1:
        _check_second(consumer, names[1], hints[1])
    return HandlerParameters(takes_batch, hints[0] not in _SILENT, len(needed) > 1)


def _check_first(consumer: str, name: str, hint: Any, *, takes_batch: bool) -> None:
    if _is_a(hint, EventContext):
        message = (
            f"consumer {consumer!r}: the event comes first and the context second, but the first parameter, {name}, is "
            f"annotated as {_shown(hint)}: let the handler take (event: Event, ctx: EventContext)"
        )
        raise ConfigError(message)
    one = _member(hint) if takes_batch else hint
    if not _fits(one, Event):
        message = (
            f"consumer {consumer!r}: the first parameter, {name}, is annotated as {_shown(hint)}, but it is given an "
            "Event, or a list of them: annotate it as Event or list[Event], and read what an event carries with "
            "event.payload or event.decode(…)"
        )
        raise ConfigError(message)


def _check_second(consumer: str, name: str, hint: Any) -> None:
    if not _fits(hint, EventContext):
        message = (
            f"consumer {consumer!r}: the second parameter, {name}, is annotated as {_shown(hint)}, but it is given the "
            "context of an event: annotate it as EventContext (from holdfast import EventContext), or leave it out"
        )
        raise ConfigError(message)


def _resolved(annotation: Any, scope: dict[str, Any]) -> Any:
    """Return what an annotation means; one that only the type checker can resolve is told apart by its words."""
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        return typing.get_type_hints(holder, globalns=scope)["it"]
    except Exception:  # noqa: BLE001 - whatever a text may do when it is evaluated
        return list if str(annotation).startswith(("list[", "List[", "Sequence[")) else Any


def _is_batch(hint: Any) -> bool:
    """Tell whether it is a list, or something else that a list can stand for."""
    parts = _parts(hint)
    return bool(parts) and all((typing.get_origin(part) or part) in _BATCHES for part in parts)


def _member(hint: Any) -> Any:
    for part in _parts(hint):
        for argument in typing.get_args(part):
            if argument is not Ellipsis:
                return argument
    return Any


def _fits(hint: Any, kind: type) -> bool:
    """Tell whether a value of this kind may be what is annotated; what cannot be judged may be."""
    return any(_may_be(part, kind) for part in _parts(hint))


def _may_be(hint: Any, kind: type) -> bool:
    cls = typing.get_origin(hint) or hint
    if hint in _SILENT or not isinstance(cls, type) or getattr(cls, "_is_protocol", False):
        return True
    return issubclass(kind, cls) or issubclass(cls, kind)


def _is_a(hint: Any, kind: type) -> bool:
    return any(isinstance(part, type) and issubclass(part, kind) for part in _parts(hint))


def _parts(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union but None, or the one type that it is."""
    if typing.get_origin(hint) in {typing.Union, types.UnionType}:
        return tuple(part for part in typing.get_args(hint) if part is not types.NoneType)
    return (hint,)


def _shown(hint: Any) -> str:
    return inspect.formatannotation(hint)
