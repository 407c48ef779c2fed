"""Records the transactions of handlers, of one job and of many, and the outcomes that are written in them."""

# ruff: noqa: D102 - the port states the contracts

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from datetime import timedelta
from inspect import isawaitable
from typing import Any, Final

from holdfast.errors import LeaseLost, OutcomeUnknown
from holdfast.model.instants import span_micros
from holdfast.model.isolation import READ_COMMITTED, Isolation
from holdfast.model.job import Lease
from holdfast.model.outcome import Outcome, Retried, Snoozed
from holdfast.store.backend import Transaction, Transactions
from holdfast.store.job_rows import Key
from holdfast.store.values import Finish, Verdict
from holdfast.torture.events import EffectBegan, EffectCommitted, EffectRolledBack, EffectUnknown, Finished
from holdfast.torture.history import now_us
from holdfast.torture.recorder import Recorder

UNAVAILABLE: Final = "unavailable"
UNKNOWN: Final = "unknown"
joined_transaction: ContextVar[RecordingTransaction | None] = ContextVar("holdfast_torture_joined", default=None)


class RecordingTransactions:
    """Records handlers' transactions: begun, committed, rolled back, unknown."""

    def __init__(self, inner: Transactions, recorder: Recorder) -> None:
        self._inner = inner
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @asynccontextmanager
    async def begin_many(
        self, leases: Sequence[Lease], *, limit: timedelta, isolation: Isolation = READ_COMMITTED
    ) -> AsyncGenerator[Transaction]:
        with self._recorded(leases) as effect:
            async with self._inner.begin_many(leases, limit=limit, isolation=isolation) as transaction:
                effect.transaction = transaction
                yield effect

    @contextmanager
    def begin_many_blocking(
        self, leases: Sequence[Lease], *, limit: timedelta, isolation: Isolation = READ_COMMITTED
    ) -> Generator[Transaction]:
        opening = self._inner.begin_many_blocking(leases, limit=limit, isolation=isolation)
        with self._recorded(leases) as effect, opening as transaction:
            effect.transaction = transaction
            yield effect

    @asynccontextmanager
    async def begin(
        self, lease: Lease, *, limit: timedelta, isolation: Isolation = READ_COMMITTED
    ) -> AsyncGenerator[Transaction]:
        with self._recorded([lease]) as effect:
            async with self._inner.begin(lease, limit=limit, isolation=isolation) as transaction:
                effect.transaction = transaction
                yield effect

    @contextmanager
    def begin_blocking(
        self, lease: Lease, *, limit: timedelta, isolation: Isolation = READ_COMMITTED
    ) -> Generator[Transaction]:
        opening = self._inner.begin_blocking(lease, limit=limit, isolation=isolation)
        with self._recorded([lease]) as effect, opening as transaction:
            effect.transaction = transaction
            yield effect

    @contextmanager
    def _recorded(self, leases: Sequence[Lease]) -> Generator[RecordingTransaction]:
        effect = RecordingTransaction(self._recorder)
        sent_us, write = now_us(), self._recorder.write
        for lease in leases:
            write(EffectBegan(at_us=sent_us, job=lease.job_id, fence=lease.fence))
        outer = joined_transaction.get()
        joined_transaction.set(effect)
        try:
            yield effect
        except OutcomeUnknown as error:
            for lease in leases:
                write(EffectUnknown(at_us=now_us(), job=lease.job_id, fence=lease.fence, error=str(error)))
            effect.end(UNKNOWN)
            raise
        except BaseException as error:
            for lease in leases:
                rolled_back = EffectRolledBack(
                    at_us=now_us(), job=lease.job_id, fence=lease.fence, error=type(error).__name__
                )
                write(rolled_back)
            effect.end(UNAVAILABLE)
            raise
        finally:
            joined_transaction.set(outer)
        effect.end(None)
        if effect.completes:  # a step is no effect: steps are compared with their own table
            write(EffectCommitted(at_us=now_us(), job=leases[0].job_id, fence=leases[0].fence, sent_us=sent_us))


class RecordingTransaction:
    """A handler's transaction that knows whether it completes its job; outcomes of a batch are recorded one by one."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.transaction: Transaction | None = None
        self.completes = False
        self.later: list[Callable[[str | None], None]] = []
        """The calls that joined it, to be recorded when it ends."""

    def end(self, how: str | None) -> None:
        """Record the calls that joined it: with this verdict or, if None, with the store's own."""
        for write in self.later:
            write(how)

    @property
    def connection(self) -> Any:
        return self._open.connection

    def complete(self, lease: Lease, result: str | None) -> Any:
        self.completes = True
        return self._open.complete(lease, result)

    @property
    def held(self) -> frozenset[Key]:
        return self._open.held

    @property
    def concerns_children(self) -> bool:
        return self._open.concerns_children

    def finish(self, finishes: Sequence[Finish]) -> Any:
        sent_us = now_us()
        written = self._open.finish(finishes)
        if not isawaitable(written):
            return self._finished(finishes, written, sent_us)

        async def awaited() -> list[Verdict]:
            return self._finished(finishes, await written, sent_us)

        return awaited()

    def _finished(self, finishes: Sequence[Finish], verdicts: list[Verdict], sent_us: int) -> list[Verdict]:
        def record(how: str | None) -> None:
            answers = verdicts if how is None else [how] * len(finishes)
            record_finishes(self._recorder, finishes, answers, sent_us)

        self.later.append(record)  # it takes effect when the transaction commits
        return verdicts

    @property
    def _open(self) -> Transaction:
        if self.transaction is None:
            raise LeaseLost("the transaction was never opened")
        return self.transaction


def record_finishes(recorder: Recorder, finishes: Sequence[Finish], verdicts: Sequence[str], sent_us: int) -> None:
    """Record outcomes and the verdicts on them; a delayed one was not written and is sent again."""
    at_us = now_us()
    for finish, verdict in zip(finishes, verdicts, strict=True):
        if verdict == Verdict.DELAYED:
            continue
        record = Finished(
            at_us=at_us,
            job=finish.lease.job_id,
            fence=finish.lease.fence,
            outcome=type(finish.outcome).__name__.lower(),
            verdict=str(verdict),
            sent_us=sent_us,
            delay_us=_delay_of(finish.outcome),
        )
        recorder.write(record)


def _delay_of(outcome: Outcome) -> int:
    return span_micros(outcome.delay) if isinstance(outcome, Retried | Snoozed) else 0
