"""The parameters of a consumer's handler: an event or a list of events, and optionally a context.

Arguments are passed by position, so an annotation that contradicts its position would be wrong: it is rejected when the
consumer is registered.
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
    """Return what a handler takes; raises `ConfigError` if it cannot be called so, or its annotations disagree."""
    scope = _KNOWN | names_known_to(call)
    given = [
        (parameter, _resolved(parameter.annotation, scope)) for parameter in inspect.signature(call).parameters.values()
    ]
    needed = [
        parameter
        for place, (parameter, annotation) in enumerate(given)
        if parameter.default is Parameter.empty or (place == 1 and _is_a(annotation, EventContext))
    ]
    if not 1 <= len(needed) <= 2 or any(parameter.kind not in _PLAIN for parameter in needed):  # noqa: PLR2004
        message = (
            f"consumer {consumer!r}: its handler must take an event (or a list of events) and, optionally, a context"
        )
        raise ConfigError(message)
    annotations = [annotation for parameter, annotation in given if parameter in needed]
    names = [parameter.name for parameter in needed]
    takes_batch = _is_batch(annotations[0])
    _check_first(consumer, names[0], annotations[0], takes_batch=takes_batch)
    if len(needed) > 1:
        _check_second(consumer, names[1], annotations[1])
    return HandlerParameters(takes_batch, annotations[0] not in _SILENT, len(needed) > 1)


def _check_first(consumer: str, name: str, annotation: Any, *, takes_batch: bool) -> None:
    if _is_a(annotation, EventContext):
        message = (
            f"consumer {consumer!r}: the event comes first and the context second, but the first parameter, {name}, is "
            f"annotated as {_shown(annotation)}: declare the parameters as (event: Event, ctx: EventContext)"
        )
        raise ConfigError(message)
    one = _member(annotation) if takes_batch else annotation
    if not _fits(one, Event):
        message = (
            f"consumer {consumer!r}: the first parameter, {name}, is annotated as {_shown(annotation)}, but it "
            "receives an Event, or a list of events: annotate it as Event or list[Event], and read the payload with "
            "event.payload or event.decode(…)"
        )
        raise ConfigError(message)


def _check_second(consumer: str, name: str, annotation: Any) -> None:
    if not _fits(annotation, EventContext):
        message = (
            f"consumer {consumer!r}: the second parameter, {name}, is annotated as {_shown(annotation)}, but it "
            "receives the context: annotate it as EventContext (from holdfast import EventContext), or remove it"
        )
        raise ConfigError(message)


def _resolved(annotation: Any, scope: dict[str, Any]) -> Any:
    """Return the resolved annotation; one that only a type checker can resolve is judged by its text."""
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        return typing.get_type_hints(holder, globalns=scope)["it"]
    except Exception:  # noqa: BLE001 - evaluating the text may raise anything
        return list if str(annotation).startswith(("list[", "List[", "Sequence[")) else Any


def _is_batch(annotation: Any) -> bool:
    """Return whether it is a list, or another type that accepts a list."""
    parts = _parts(annotation)
    return bool(parts) and all((typing.get_origin(part) or part) in _BATCHES for part in parts)


def _member(annotation: Any) -> Any:
    for part in _parts(annotation):
        for argument in typing.get_args(part):
            if argument is not Ellipsis:
                return argument
    return Any


def _fits(annotation: Any, kind: type) -> bool:
    """Return whether a value of this kind may match the annotation; True if that cannot be decided."""
    return any(_may_be(part, kind) for part in _parts(annotation))


def _may_be(annotation: Any, kind: type) -> bool:
    cls = typing.get_origin(annotation) or annotation
    if annotation in _SILENT or not isinstance(cls, type) or getattr(cls, "_is_protocol", False):
        return True
    return issubclass(kind, cls) or issubclass(cls, kind)


def _is_a(annotation: Any, kind: type) -> bool:
    return any(isinstance(part, type) and issubclass(part, kind) for part in _parts(annotation))


def _parts(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union without None, or the type itself."""
    if typing.get_origin(annotation) in {typing.Union, types.UnionType}:
        return tuple(part for part in typing.get_args(annotation) if part is not types.NoneType)
    return (annotation,)


def _shown(annotation: Any) -> str:
    return inspect.formatannotation(annotation)
