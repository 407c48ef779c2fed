"""The parameters of a handler, with resolved annotations that are known to be decodable."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from inspect import Parameter
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import inspect as shapes

from holdfast.errors import ConfigError
from holdfast.runtime.payload import decoder_for
from holdfast.runtime.values import is_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_USUAL_NAMES = {"ctx", "context"}
_UNDECODABLE = (shapes.ExtType, shapes.RawType)
_AMBIGUOUS = (
    shapes.DateTimeType,
    shapes.TimeType,
    shapes.BytesType,
    shapes.ByteArrayType,
    shapes.MemoryViewType,
)


class Parameters(msgspec.Struct, frozen=True):
    """The parameters that the payload contains, and the name of the context parameter, if there is one.

    If there is none, `unmarked` is an unannotated parameter with a name that is usual for contexts, if there is one.
    """

    encoded: tuple[Parameter, ...]
    context: str | None
    unmarked: str | None = None


def read_parameters(handler: Callable[..., Any], task: str, *, context_type: type | None) -> Parameters:
    """Return the parameters of a handler; raise `ConfigError` if a worker could not call it."""
    try:
        found = inspect.signature(handler)
    except (TypeError, ValueError, NameError) as error:
        raise ConfigError(f"task {task!r}: the signature of {handler!r} cannot be inspected: {error}") from error
    scope = _scope(handler, context_type)
    encoded: list[Parameter] = []
    context: Parameter | None = None
    for parameter in found.parameters.values():
        resolved = parameter.replace(annotation=_resolve(parameter, task, scope))
        if context_type is None or not _takes_context(resolved.annotation, context_type):
            encoded.append(resolved)
        elif context is None:
            context = resolved
        else:
            raise ConfigError(
                f"task {task!r} has two context parameters, {context.name} and {resolved.name}: remove one"
            )
    if context is not None:
        _check_context(context, encoded, task)
        return Parameters(tuple(encoded), context.name)
    bare = [name for name, parameter in found.parameters.items() if parameter.annotation is Parameter.empty]
    return Parameters(tuple(encoded), None, next((name for name in bare if name in _USUAL_NAMES), None))


def read_returns(handler: Callable[..., Any]) -> Any:
    """Return the annotated type of a handler's result; Any if there is none, or none to which a result can be decoded.

    A handler annotated as returning None may still set `ctx.result`: its results are decoded to plain values.
    """
    try:
        annotation = inspect.signature(handler).return_annotation
        holder = types.SimpleNamespace(__annotations__={"return": annotation})
        resolved = typing.get_type_hints(holder, globalns=names_known_to(handler), include_extras=True)["return"]
        decoder_for(resolved)
    except Exception:  # noqa: BLE001 - a result is then decoded to plain values, as without an annotation
        return Any
    return Any if annotation is Parameter.empty or resolved is type(None) else resolved


def check_annotation(parameter: Parameter, task: str) -> bool:
    """Raise `ConfigError` if an annotation cannot be decoded; return whether it gives strings another meaning.

    Ambiguous are datetimes and times, which may lack a time zone, and bytes, which JSON represents as base64.
    """
    ambiguous = False
    try:
        decoder_for(parameter.annotation)
        for shape in _shapes(shapes.type_info(parameter.annotation), set()):
            if isinstance(shape, shapes.CustomType) and not is_model(shape.cls):
                raise TypeError(f"{shape.cls.__qualname__} cannot be decoded from JSON")  # noqa: TRY301
            if isinstance(shape, _UNDECODABLE):
                raise TypeError(f"{type(shape).__name__} cannot be decoded from JSON")  # noqa: TRY301
            ambiguous = ambiguous or isinstance(shape, _AMBIGUOUS)
    except Exception as error:
        raise ConfigError(
            f"task {task!r}, parameter {parameter.name}: {inspect.formatannotation(parameter.annotation)} "
            f"cannot be decoded ({error}): use plain types, a dataclass, a msgspec.Struct, a TypedDict "
            "or a pydantic model, or pass an id and load the object in the handler"
        ) from error
    return ambiguous


def _scope(handler: Any, context_type: type | None) -> dict[str, Any]:
    """Return the names that string annotations may use: those of the handler's module, and the context type."""
    # The context type is often imported under TYPE_CHECKING only; a name defined in the module takes precedence.
    known = {} if context_type is None else {context_type.__name__: context_type}
    return known | names_known_to(handler)


def names_known_to(handler: Any) -> dict[str, Any]:
    """Return the global names of the module that defines a handler."""
    function: Any = inspect.unwrap(handler)
    while issubclass(type(function), functools.partial):
        function = inspect.unwrap(function.func)
    if not hasattr(function, "__globals__") and not hasattr(function, "__func__"):
        function = inspect.unwrap(type(function).__call__)
    function = getattr(function, "__func__", function)
    names: dict[str, Any] = getattr(function, "__globals__", {})
    return names


def _resolve(parameter: Parameter, task: str, scope: dict[str, Any]) -> Any:
    if parameter.annotation is Parameter.empty:
        return Any
    holder = types.SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    try:
        resolved = typing.get_type_hints(holder, globalns=scope, include_extras=True)[parameter.name]
    except Exception as error:
        raise ConfigError(
            f"task {task!r}, parameter {parameter.name}: the annotation {parameter.annotation!r} cannot be resolved "
            f"({error}): import or define it at the top of the handler's module, not under TYPE_CHECKING"
        ) from error
    return Any if resolved is object else resolved


def _takes_context(annotation: Any, context_type: type) -> bool:
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _takes_context(typing.get_args(annotation)[0], context_type)
    if origin is typing.Union or origin is types.UnionType:
        return any(_takes_context(part, context_type) for part in typing.get_args(annotation))
    cls = origin or annotation
    return isinstance(cls, type) and issubclass(cls, context_type)


def _check_context(context: Parameter, encoded: list[Parameter], task: str) -> None:
    named = context.kind in {Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY}
    in_the_way = context.kind is Parameter.POSITIONAL_OR_KEYWORD and any(
        parameter.kind is Parameter.VAR_POSITIONAL for parameter in encoded
    )
    if not named or in_the_way:
        raise ConfigError(
            f"task {task!r}: the context parameter {context.name} cannot be passed by name: "
            f"put it last, as a keyword-only parameter (*, {context.name})"
        )


def _shapes(root: shapes.Type, met: set[int]) -> Iterator[shapes.Type]:
    """Yield a type and all types inside it, each once: types may be recursive."""
    if id(root) in met:
        return
    met.add(id(root))
    yield root
    for name in root.__struct_fields__:
        part: Any = getattr(root, name)
        for item in part if issubclass(type(part), tuple) else (part,):
            if isinstance(item, shapes.Field):
                yield from _shapes(item.type, met)
            elif isinstance(item, shapes.Type):
                yield from _shapes(item, met)
