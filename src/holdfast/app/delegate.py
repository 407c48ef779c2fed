"""A method of a part, offered by the whole without a second copy of its signature."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")


class Delegated(Generic[P, R]):
    """A descriptor: the method of the part that the whole keeps in the attribute `part`.

    Asked of the class, it is the part's function, for documentation and introspection.
    """

    def __init__(self, part: str, method: Callable[Concatenate[Any, P], R]) -> None:
        self._part = part
        self._method = method

    def __get__(self, whole: object | None, _: object = None) -> Callable[P, R]:
        """Return the method, bound to the part."""
        bound: object = self._method if whole is None else MethodType(self._method, getattr(whole, self._part))
        return cast("Callable[P, R]", bound)
