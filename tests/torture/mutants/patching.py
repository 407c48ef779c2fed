"""How a mutant changes the product in the process that it is loaded into: by the text of a statement or of a function.

A target that is not there, or does not say what the mutant replaces, raises `MissingTarget`: a mutant that changes
nothing would prove nothing.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import sys
import textwrap
from functools import reduce
from types import FunctionType
from typing import Any, NamedTuple, Protocol

_STATEMENTS = {
    "sqlite": ("holdfast.backends.sqlite.statements", "STATEMENTS"),
    "postgresql": ("holdfast.backends.postgres.statements", "TEMPLATES"),
}


class MissingTarget(Exception):  # noqa: N818 - reads as the sentence it states
    """The product does not have what the mutant would replace."""


class Patch(Protocol):
    """One change."""

    @property
    def target(self) -> str:
        """What is changed, in words."""
        ...

    def apply(self) -> None:
        """Change it in this process."""
        ...


class Sql(NamedTuple):
    """Replace a part of a named statement of a store."""

    store: str
    name: str
    old: str
    new: str

    @property
    def target(self) -> str:
        return f"statement `{self.name}` of {self.store}"

    def apply(self) -> None:
        module, attribute = _STATEMENTS[self.store]
        statements: dict[str, str] = getattr(importlib.import_module(module), attribute)
        if self.name not in statements:
            raise MissingTarget(f"{self.target}: there is no such statement")
        statements[self.name] = _replaced(self.target, statements[self.name], self.old, self.new)


class Lua(NamedTuple):
    """Replace a part of a script of the store on Redis."""

    name: str
    old: str
    new: str

    @property
    def target(self) -> str:
        return f"script `{self.name}`"

    def apply(self) -> None:
        scripts: Any = importlib.import_module("holdfast.backends.redis.scripts")
        found = [each for each in scripts.ALL if each.name == self.name]
        if not found:
            raise MissingTarget(f"{self.target}: there is no such script")
        text = _replaced(self.target, found[0].text, self.old, self.new)
        changed = found[0]._replace(text=text, sha=hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
        for module in [module for name, module in sys.modules.items() if name.startswith("holdfast.backends.redis")]:
            for attribute, value in list(vars(module).items()):
                if value is found[0]:
                    setattr(module, attribute, changed)  # everywhere at once


class Code(NamedTuple):
    """Replace a part of the source of a function: `package.module:Class.method`, decorated or not."""

    where: str
    old: str
    new: str
    more: tuple[tuple[str, str], ...] = ()
    """Further parts of the same function, and what they are replaced by."""

    @property
    def target(self) -> str:
        return f"`{self.where.removeprefix('holdfast.')}`"

    def apply(self) -> None:
        function = self._function()
        source = textwrap.dedent(inspect.getsource(function))
        lines = source.splitlines(keepends=True)
        first = next(index for index, line in enumerate(lines) if line.startswith(("def ", "async def ")))
        changed = "".join(lines[first:])
        for old, new in ((self.old, self.new), *self.more):
            changed = _replaced(self.target, changed, old, new)
        made: dict[str, Any] = {}
        code = compile("from __future__ import annotations\n" + changed, f"<mutant of {self.where}>", "exec")
        exec(code, function.__globals__, made)  # noqa: S102 - our own text, in a test
        mutant: FunctionType = made[function.__name__]
        function.__code__ = mutant.__code__.replace(co_qualname=function.__code__.co_qualname)  # everywhere at once
        function.__defaults__, function.__kwdefaults__ = mutant.__defaults__, mutant.__kwdefaults__

    def _function(self) -> FunctionType:
        module, _, path = self.where.partition(":")
        try:
            *owners, name = path.split(".")
            owner: Any = reduce(getattr, owners, importlib.import_module(module))
            found = inspect.getattr_static(owner, name)
        except (ImportError, AttributeError) as error:
            raise MissingTarget(f"{self.target}: {error}") from error
        if isinstance(found, property):
            found = found.fget
        elif isinstance(found, staticmethod | classmethod):
            found = found.__func__
        found = inspect.unwrap(found)
        if not isinstance(found, FunctionType):
            raise MissingTarget(f"{self.target} is no function")
        return found


def _replaced(target: str, text: str, old: str, new: str) -> str:
    if old not in text:
        raise MissingTarget(f"{target} does not say {old!r}")
    return text.replace(old, new)
