"""A connection to the store under torture that is not Holdfast's: what `using=` takes."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from holdfast.errors import OutcomeUnknown, StoreUnavailable
from holdfast.torture.work.app import target


class Connected:
    """A connection in a transaction; it raises Holdfast's errors, so that an attempt can classify them."""

    def __init__(self, raw: Any, trouble: tuple[type[Exception], ...]) -> None:
        self.raw = raw
        self._trouble = trouble

    def execute(self, statement: str, values: tuple[Any, ...] = ()) -> None:
        """Run a statement."""
        try:
            self.raw.execute(statement, values)
        except self._trouble as error:
            raise StoreUnavailable(str(error)) from error

    def commit(self) -> None:
        """Commit; raises `OutcomeUnknown` if the reply was lost."""
        try:
            self.raw.commit()
        except self._trouble as error:
            raise OutcomeUnknown(str(error)) from error

    def rollback(self) -> None:
        """Roll back."""
        try:
            self.raw.rollback()
        except self._trouble as error:  # the connection is broken: the store rolls back by itself
            raise StoreUnavailable(str(error)) from error


@contextmanager
def connected() -> Generator[Connected]:
    """Open a connection to the store of this run, in a transaction; it is rolled back unless committed."""
    with target().connection() as raw:
        yield Connected(raw, target().errors)
