"""Task calls as JSON: bound and validated at enqueue, decoded to the annotated types in the worker.

```text
charge(7, note="x")  ──encode──▶  [[], {"order_id": 7, "note": "x"}]  ──decode──▶  charge(order_id=7, note="x")
```

Arguments are encoded by name, so that the next version of a handler may reorder its parameters or add some with
defaults. Only arguments that cannot be named are encoded by position: positional-only parameters, and `*args` with
everything before it. Defaults are never encoded: those of the worker's version apply.

`encode` decodes its own output, so that a call that the worker would reject is rejected where it is made.
"""

from __future__ import annotations

import inspect
import re
from inspect import Parameter
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from holdfast.errors import ArgumentsError, PayloadError
from holdfast.runtime.parameters import check_annotation, read_parameters
from holdfast.runtime.payload import MAX_PAYLOAD, check_size, decoder_for, encode_json, size_of
from holdfast.runtime.values import Refused, check, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_UNSET = msgspec.UNSET
_NUL = "\\u0000"  # as the encoder writes it; after an escaped backslash it is a false alarm, but none is missed
_PATH = re.compile(r" - at `\$\[1\](?:\.([^`]*))?`$")
_RAW = msgspec.json.Decoder(tuple[list[msgspec.Raw], dict[str, msgspec.Raw]])
_NOTHING: tuple[Any, ...] = ()
_Call = tuple[list[Any], dict[str, Any]]


class Signature:
    """The parameters of a task; built once per task by `Signature.of`."""

    __slots__ = (
        "_ambiguous",
        "_by_name",
        "_decoders",
        "_extra",
        "_has_defaults",
        "_only_positional",
        "_ordered",
        "_read_named",
        "_required",
        "_rest",
        "_unmarked",
        "context",
        "task",
        "text",
    )

    def __init__(
        self,
        task: str,
        parameters: Sequence[Parameter],
        context: str | None,
        *,
        unmarked: tuple[str, str] | None = None,
    ) -> None:
        self.task = task
        self.context = context
        """The name of the context parameter, which the worker passes by name; None if there is none."""
        self.text = f"{task}{inspect.Signature(parameters)}"
        """The signature in Python syntax, without the context."""
        self._unmarked = unmarked  # a parameter that may be meant as the context, and the annotation it would need
        by_kind: dict[Any, list[Parameter]] = {}
        for parameter in parameters:
            by_kind.setdefault(parameter.kind, []).append(parameter)
        positional = by_kind.get(Parameter.POSITIONAL_ONLY, [])
        either = by_kind.get(Parameter.POSITIONAL_OR_KEYWORD, [])
        named = either + by_kind.get(Parameter.KEYWORD_ONLY, [])
        ambiguous = [check_annotation(parameter, task) for parameter in parameters]
        self._ambiguous = any(ambiguous)  # then even a plain string must be compared with its decoded value
        self._only_positional = len(positional)
        self._ordered = tuple(parameter.name for parameter in positional + either)
        self._by_name = frozenset(parameter.name for parameter in named)
        self._required = tuple(
            parameter.name for parameter in positional + named if parameter.default is Parameter.empty
        )
        self._has_defaults = len(self._required) < len(positional) + len(named)
        self._rest = next((parameter.name for parameter in by_kind.get(Parameter.VAR_POSITIONAL, ())), "")
        self._extra = next((parameter.name for parameter in by_kind.get(Parameter.VAR_KEYWORD, ())), "")
        self._decoders = {parameter.name: decoder_for(parameter.annotation) for parameter in parameters}
        by_name_alone = not positional and not self._rest and not self._extra
        self._read_named = _named_decoder(named).decode if by_name_alone else None

    @classmethod
    def of(cls, handler: Callable[..., Any], *, task: str | None = None, context_type: type | None = None) -> Signature:
        """Return the signature of a handler; raise `ConfigError` if its arguments cannot be encoded.

        The worker fills in the parameter annotated with `context_type`. A parameter without an annotation accepts any
        plain value.
        """
        name = task or str(getattr(handler, "__name__", type(handler).__name__))
        parameters = read_parameters(handler, name, context_type=context_type)
        unmarked = None
        if context_type is not None and parameters.unmarked is not None:
            unmarked = parameters.unmarked, context_type.__name__
        return cls(name, parameters.encoded, parameters.context, unmarked=unmarked)

    def __repr__(self) -> str:
        return f"<Signature {self.text}>"

    # On one core of a small server, CPython 3.11: `f(order_id: int)` by keyword takes 0.8 µs to encode and check and
    # 0.35 µs to decode; three dataclasses and a datetime, compared field by field, 11 µs and 1.2 µs.
    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """Return a call as JSON; raise `ArgumentsError` if it does not match, `PayloadError` if it is too large."""
        if args or self._read_named is None:
            positional, named = self._bind(args, kwargs)
        else:
            positional, named = _NOTHING, kwargs
        try:
            data = encode_json((positional, named))
            if len(data) > MAX_PAYLOAD:
                check_size(len(data), f"the call of task {self.task!r}")
            seen = self._read(data)
            text = data.decode()
            if positional or self._ambiguous or _NUL in text or not plain(named):
                self._check(positional, named, seen=seen)
        except PayloadError:
            raise
        except Exception as error:  # noqa: BLE001 - `_explain` raises it as an ArgumentsError
            self._explain(args, kwargs, error)
        return text

    def decode(self, payload: str) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of a call as the annotated types; raise `PayloadError` if they do not match."""
        if len(payload) > MAX_PAYLOAD // 4:  # a character has at most four bytes
            check_size(size_of(payload), f"the payload of task {self.task!r}")
        try:
            return self._read(payload)
        except Exception as error:
            raise PayloadError(
                f"the payload does not match task {self.task!r}: {_reason(error)}; the signature is {self.text}"
            ) from error

    def decode_only(self, name: str, payloads: Sequence[str]) -> list[Any] | None:
        """Return the named argument, which must be the only one, of many calls; None: decode each by itself.

        That takes a third of the time, and is not possible if one of the calls does not match or is very large.
        """
        read = self._read_named
        if read is None or self._has_defaults or max(map(len, payloads), default=0) > MAX_PAYLOAD // 4:
            return None
        try:
            return [getattr(read(payload)[1], name) for payload in payloads]
        except Exception:  # noqa: BLE001 - the decoding of each call explains it
            return None

    def _read(self, payload: bytes | str) -> tuple[list[Any], dict[str, Any]]:
        if self._read_named is None:
            return self._read_parts(payload)
        named = msgspec.structs.asdict(self._read_named(payload)[1])
        if self._has_defaults:
            named = {name: value for name, value in named.items() if value is not _UNSET}
        return [], named

    def _read_parts(self, payload: bytes | str) -> tuple[list[Any], dict[str, Any]]:
        raw_args, raw_named = _RAW.decode(payload)
        self._check_fit(len(raw_args), raw_named)
        decoders, args, named = self._decoders, list[Any](), dict[str, Any]()
        name = ""
        try:
            for index, raw in enumerate(raw_args):
                name = self._ordered[index] if index < len(self._ordered) else self._rest
                args.append(decoders[name].decode(raw))
            for name, raw in raw_named.items():
                named[name] = decoders[name if name in self._by_name else self._extra].decode(raw)
        except msgspec.ValidationError as error:
            raise Refused(str(error).replace("`$", "`")).within(f".{name}") from error
        return args, named

    def _bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Split a call into the arguments encoded by position and those encoded by name."""
        if self._rest and len(args) > len(self._ordered):
            positional, named = args, kwargs
        else:
            if len(args) > len(self._ordered):
                self._misfit(f"{len(args)} positional arguments were passed, at most {len(self._ordered)} are allowed")
            positional = args[: self._only_positional]
            named = dict(zip(self._ordered[self._only_positional :], args[self._only_positional :], strict=False))
            for name in kwargs:
                if name in named:
                    self._misfit(f"{name} was passed twice, by position and by name")
            named.update(kwargs)
        try:
            self._check_fit(len(positional), named)
        except Refused as refused:
            self._misfit(refused.reason)
        return positional, named

    def _check_fit(self, count: int, named: Mapping[str, Any]) -> None:
        """Raise `Refused` if a call with `count` positional arguments and these names does not match."""
        if not self._rest and count > self._only_positional:
            raise Refused(f"{count} arguments are encoded by position, but at most {self._only_positional} may be")
        by_position = self._ordered[:count]
        for name in named:
            if name == self.context:
                raise Refused(f"{name} is the context, which the worker passes: leave it out")
            if name in by_position and name in self._by_name:
                raise Refused(f"{name} was passed twice, by position and by name")
            if name not in self._by_name and not self._extra:
                raise Refused(f"there is no parameter {name}")
        positional_only = self._ordered[: self._only_positional]
        for name in self._required:
            if name not in by_position and (name in positional_only or name not in named):
                raise Refused(f"the argument {name} is missing{self._remedy_for_missing(name)}")

    def _remedy_for_missing(self, name: str) -> str:
        if self._unmarked is None or self._unmarked[0] != name:
            return ""
        return f": annotate it as {self._unmarked[1]} if the worker is to fill it in"

    def _check(self, positional: Sequence[Any], named: Mapping[str, Any], *, seen: _Call) -> None:
        for index, value in enumerate(positional):
            name = self._ordered[index] if index < len(self._ordered) else f"{self._rest}[{index - len(self._ordered)}]"
            try:
                check(value, seen[0][index])
            except Refused as refused:
                raise refused.within(f".{name}") from None
        check(dict(named), seen[1])

    def _explain(self, args: Sequence[Any], kwargs: Mapping[str, Any], error: Exception) -> NoReturn:
        """Raise an `ArgumentsError` with the most precise reason why a call cannot be encoded."""
        positional, named = self._bind(args, kwargs)
        try:
            # The encoder does not name the place of a problem and writes NaN as null: search for the value first.
            self._check(positional, named, seen=(list(positional), dict(named)))
        except Refused as refused:
            self._misfit(refused.text, error)
        self._misfit(_reason(error), error)

    def _misfit(self, reason: str, cause: Exception | None = None) -> NoReturn:
        raise ArgumentsError(f"task {self.task!r}: {reason}; the signature is {self.text}") from cause


def _named_decoder(parameters: Sequence[Parameter]) -> msgspec.json.Decoder[Any]:
    """Return the decoder of a call encoded only by name: a struct built for it, decoded in one pass."""
    fields = [
        (parameter.name, parameter.annotation, msgspec.field() if parameter.default is Parameter.empty else _UNSET)
        for parameter in parameters
    ]
    named = msgspec.defstruct("Arguments", fields, forbid_unknown_fields=True, kw_only=True, gc=False)
    wire: Any = tuple[tuple[()], named]  # type: ignore[valid-type]
    return decoder_for(wire)


def _reason(error: Exception) -> str:
    """Return the reason of an error, with the place in Python syntax."""
    if isinstance(error, Refused):
        return error.text
    text = str(error)
    found = _PATH.search(text)
    if found is None:
        return text
    text = text[: found.start()].replace("Object contains unknown field", "there is no parameter")
    text = text.replace("Object missing required field", "missing argument")
    return f"{found[1]}: {text}" if found[1] else text
