"""Joins enqueues that are asked for while one is on its way to the server.

A lone one goes at once. Those that come meanwhile wait for its reply and then go together, in one statement: many
callers share a round trip and a commit, and nobody waits for company.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from weakref import WeakKeyDictionary

from holdfast.errors import StoreError
from holdfast.model.job import NewJob

_TOGETHER = 1_000
Insert = Callable[[Sequence[NewJob]], Awaitable[list[bool]]]
Waiting = tuple[Sequence[NewJob], "asyncio.Future[list[bool]]"]


class _Line:
    """The line of one event loop."""

    def __init__(self) -> None:
        self.busy = False
        self.waiting: list[Waiting] = []
        self.task: asyncio.Task[None] | None = None


class Gathering:
    """One enqueue at a time per event loop; the next takes all that have come meanwhile."""

    def __init__(self, insert: Insert) -> None:
        self._insert = insert
        self._lines: WeakKeyDictionary[asyncio.AbstractEventLoop, _Line] = WeakKeyDictionary()

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[bool]:
        """Insert jobs, alone or with others."""
        loop = asyncio.get_running_loop()
        line = self._lines.get(loop)
        if line is None:
            line = self._lines[loop] = _Line()
        if line.busy:
            answer: asyncio.Future[list[bool]] = loop.create_future()
            line.waiting.append((jobs, answer))
            return await answer
        line.busy = True
        try:
            return await self._insert(jobs)
        finally:
            self._go_on(line)

    def _go_on(self, line: _Line) -> None:
        if line.waiting:
            line.task = asyncio.ensure_future(self._insert_waiting(line))
        else:
            line.busy = False
            line.task = None

    async def _insert_waiting(self, line: _Line) -> None:
        batch: list[Waiting] = []
        count = 0
        while line.waiting and count < _TOGETHER:
            batch.append(line.waiting.pop(0))
            count += len(batch[-1][0])
        try:
            await self._insert_together([each for each in batch if not each[1].done()])
        finally:
            self._go_on(line)

    async def _insert_together(self, batch: list[Waiting]) -> None:
        try:
            created = await self._insert([job for jobs, _ in batch for job in jobs])
        except StoreError as error:
            for _, answer in batch:
                _refuse(answer, error)
        except Exception:  # noqa: BLE001 - one of them cannot be written: let each fail or succeed by itself
            for jobs, answer in batch:
                await self._insert_one(jobs, answer)
        else:
            start = 0
            for jobs, answer in batch:
                if not answer.done():
                    answer.set_result(created[start : start + len(jobs)])
                start += len(jobs)

    async def _insert_one(self, jobs: Sequence[NewJob], answer: asyncio.Future[list[bool]]) -> None:
        try:
            created = await self._insert(jobs)
        except Exception as error:  # noqa: BLE001 - it is the caller's
            _refuse(answer, error)
        else:
            if not answer.done():
                answer.set_result(created)


def _refuse(answer: asyncio.Future[list[bool]], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
