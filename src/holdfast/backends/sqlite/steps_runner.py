"""Run verbs that are generators where callbacks over a transaction are run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from holdfast.backends.sqlite.execute import drive
from holdfast.backends.sqlite.jobs import Runner
from holdfast.store.steps import Steps

T = TypeVar("T")


class StepsRunner:
    """Runs each verb in one transaction."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    async def write(self, verb: Callable[[], Steps[T]]) -> T:
        """Run a verb under the write lock."""
        return await self._runner.write(lambda tx: drive(tx.raw, tx.now, verb()))

    async def read(self, verb: Callable[[], Steps[T]]) -> T:
        """Run a verb in one snapshot."""
        return await self._runner.read(lambda tx: drive(tx.raw, tx.now, verb()))

    once = at_once = write
    look = read
