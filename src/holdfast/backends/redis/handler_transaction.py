"""A handler's transaction on Redis: nothing is open on the server before its end; then one script writes all.

Transactions of callers are refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import timedelta
from typing import Any, NamedTuple, NoReturn, TypeVar

from holdfast.backends.redis.effects import Effects, Recorded, StaleLeases, apply
from holdfast.backends.redis.job_rows import MANY, RedisJobRows
from holdfast.backends.redis.location import RedisLocation
from holdfast.backends.redis.record import RUNNING, bucket, id_of, unpack
from holdfast.backends.redis.runners import RedisRunner, run_blocking
from holdfast.backends.redis.steps import read_many
from holdfast.backends.redis.wire import BlockingWires, Server
from holdfast.concurrency.uncancellable import uncancellable
from holdfast.errors import ConfigError, LeaseLost, TransactionConflict, Unsupported
from holdfast.model.isolation import Isolation
from holdfast.model.job import Lease, NewJob
from holdfast.model.outcome import Completed
from holdfast.store.fences import HandlersTransactions
from holdfast.store.handler_transaction import (
    FenceCheck,
    FencedVerbs,
    Opened,
    OpenTransaction,
    TransactionState,
    opened_blocking,
)
from holdfast.store.job_rows import Key
from holdfast.store.steps import Steps, Verb
from holdfast.store.values import Enqueued, Finish, Verdict
from holdfast.store.verbs import enqueue as enqueuing
from holdfast.store.verbs import finish as finishing

T = TypeVar("T")
MOST_JOBS = 500  # that one transaction enqueues: they are inserted by its script


class RedisPlace(NamedTuple):
    """What all transactions of a process share."""

    location: RedisLocation
    server: Server
    runner: RedisRunner
    rows: RedisJobRows
    became_ready: Callable[[], None]


class RedisTransaction(OpenTransaction):
    """A handler's transaction: collects, and writes at its end. Without `wires`, it is that of an async handler."""

    def __init__(self, place: RedisPlace, fence: FenceCheck, limit: timedelta, wires: BlockingWires | None) -> None:
        super().__init__(fence, limit, verbs=VERBS, owner=place.server, became_ready=lambda _: place.became_ready())
        self._place = place
        self._leases = fence.leases
        self._finishes: list[Finish] = []
        self._jobs: list[NewJob] = []
        self._answers: list[Enqueued] = []
        self._insert: enqueuing.Insert | None = None
        self._until = 0.0
        self._wires = wires
        self._wire = None if wires is None else wires.take()
        self.connection = Effects(place.location.prefix, self.check_open, self._run)

    # --- its life -----------------------------------------------------------------------------------------------------

    def begin(self) -> Any:  # noqa: D102 - see `OpenTransaction`
        return self._run(self._begin)

    def complete(self, lease: Lease, result: str | None) -> Any:
        """Note the completion: it is written at the end of the block, where a stale fence raises `LeaseLost`."""
        finish = Finish(lease, Completed(result))
        return self._answered(self._note([finish])[0])

    def finish(self, finishes: Sequence[Finish]) -> Any:
        """Note outcomes; those of leases that were not held at the beginning are LOST."""
        return self._answered(self._note(finishes))

    def end_with(self, steps: Steps[Any]) -> NoReturn:
        """Never called: the end is noted by `complete` or `finish`."""
        steps.close()
        raise NotImplementedError

    def commit_transaction(self) -> Any:  # noqa: D102
        self.seal()
        if self._wire is not None:
            return self._run(self._commit)
        return uncancellable(self._place.runner.write(self._commit))

    def undo(self, error: BaseException) -> Any:  # noqa: ARG002, D102
        if self.state is not TransactionState.EXPIRED:
            self.state = TransactionState.ENDED  # nothing was sent, or the script has written nothing
        return self._answered(None)

    def close(self) -> None:  # noqa: D102
        if self._wires is not None and self._wire is not None:
            self._wires.put(self._wire)

    def check_open(self) -> None:
        """Raise if the transaction has ended; nothing is open on the server, so its time limit is checked here."""
        self._expire()
        super().check_open()

    def seal(self) -> None:  # noqa: D102
        self._expire()
        super().seal()

    def _expire(self) -> None:
        if time.monotonic() > self._until:
            self.move(TransactionState.OPEN, TransactionState.EXPIRED)

    # --- what joins it ------------------------------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob], insert: enqueuing.Insert) -> Sequence[Enqueued]:
        """Queue jobs; return the answers of the store as it is now. If they change, the end raises a conflict."""
        self.check_open()
        known = {job.id for job in self._jobs}
        new = [job for job in jobs if job.id not in known]
        if len(known) + len(new) > MOST_JOBS:
            raise ConfigError(f"a transaction enqueues at most {MOST_JOBS} jobs: enqueue one that enqueues the others")
        self._insert = insert
        together = [*self._jobs, *new] if any(job.conditions is not None for job in (*self._jobs, *new)) else new
        answers: Sequence[Enqueued] = await self._place.runner.write(
            lambda: Recorded(is_trial=True).record(enqueuing.enqueue(self._place.rows, together, insert))
        )
        self.check_open()
        given = dict(zip((job.id for job in new), answers[len(together) - len(new) :], strict=True))
        self._jobs += new
        self._answers += given.values()
        return [given.get(job.id, False) for job in jobs]

    # --- steps --------------------------------------------------------------------------------------------------------

    def _begin(self) -> Steps[None]:
        yield from self.lock_steps()
        if self.held:
            self._leases = [lease for lease in self._leases if _key(lease) in self.held]
        self._until = time.monotonic() + self.limit.total_seconds()
        if not self.move(TransactionState.WAITING, TransactionState.OPEN):
            raise ConfigError("the handler was cancelled while its transaction began")

    def _note(self, finishes: Sequence[Finish]) -> list[Verdict]:
        self.check_open()
        held = set(map(_key, self._leases))
        for finish in finishes:
            if _key(finish.lease) in held:
                self._finishes.append(finish)
        return [Verdict.DONE if _key(finish.lease) in held else Verdict.LOST for finish in finishes]

    def _commit(self) -> Steps[None]:
        recorded = Recorded()
        try:
            answers = yield from recorded.record(self._verbs_inside())
            if answers != self._answers:
                raise TransactionConflict(
                    "a job that was enqueued in the transaction would now be answered differently: its unique key was "
                    "taken or freed, or its id is known. Nothing was written"
                )
            key_sets = yield from apply(self.connection, self._leases, recorded)
        except StaleLeases as stale:
            raise self._lost(stale) from None
        yield from self._place.rows.fill(key_sets)
        for reported in recorded.ready:
            self.ready.add(reported)
        self.state = TransactionState.ENDED

    def _lost(self, stale: StaleLeases) -> LeaseLost:
        if not self.held:
            return LeaseLost(f"{self.fence.loss}. Nothing was written")
        self.held = frozenset(map(_key, stale.held))
        lost = len(self._leases) - len(stale.held)
        return LeaseLost(f"{lost} of {len(self._leases)} jobs of a batch are no longer leased. Nothing was written")

    def _verbs_inside(self) -> Steps[list[Enqueued]]:
        """Enqueue and end jobs, as one verb: what it writes later builds on what it has written before."""
        answers: Sequence[Enqueued] = ()
        if self._insert is not None and self._jobs:
            answers = yield from enqueuing.enqueue(self._place.rows, self._jobs, self._insert)
        if self._finishes:
            verdicts = yield from finishing.finish(self._place.rows, self._finishes)
            pairs = zip(self._finishes, verdicts, strict=True)
            lost = {_key(each.lease) for each, verdict in pairs if verdict is Verdict.LOST}
            if lost:
                raise StaleLeases([lease for lease in self._leases if _key(lease) not in lost])
        return list(answers)

    # --- async or blocking --------------------------------------------------------------------------------------------

    def _run(self, verb: Verb[T]) -> Any:
        if self._wire is None:
            return self._place.runner.write(verb)
        timeout = self._place.location.reply_timeout
        return run_blocking(self._wire, self._place.rows.directory, verb, timeout)

    def _answered(self, answer: Any) -> Any:
        return answer if self._wire is not None else _awaited(answer)


async def _awaited(answer: T) -> T:
    return answer


def _key(lease: Lease) -> Key:
    return lease.seq, lease.fence


def _lock_jobs(leases: Sequence[Lease], milliseconds: int) -> Steps[frozenset[Key]]:
    """Return which leases are held now; nothing is locked, so the end looks again."""
    del milliseconds  # no session can be stuck
    ids = [id_of(lease.job_id) for lease in leases]
    _, found = yield from read_many([("HGET", bucket(id16), id16) for id16 in ids])
    held: set[Key] = set()
    for lease, text in zip(leases, found, strict=True):
        record = None if text is None else unpack(text)
        if record is not None and record.code == RUNNING and (record.seq, record.fence) == _key(lease):
            held.add(_key(lease))
    return frozenset(held)


def _lock_job(lease: Lease, milliseconds: int) -> Steps[bool]:
    return bool((yield from _lock_jobs([lease], milliseconds)))


def _refused(*_: object) -> NoReturn:
    raise NotImplementedError  # without streams there are no shares, and ends are noted


VERBS = FencedVerbs(_lock_job, _lock_jobs, _refused, _refused, _refused, _refused)


class RedisTransactions(HandlersTransactions):
    """Opens handlers' transactions. All isolation levels are the same: what was read is true when it is written."""

    def __init__(self, place: RedisPlace) -> None:
        super().__init__(VERBS)
        self._place = place
        self._wires = BlockingWires(place.server)

    def open(  # noqa: D102 - see `HandlersTransactions`
        self, fence: FenceCheck, limit: timedelta, isolation: Isolation
    ) -> AbstractAsyncContextManager[RedisTransaction]:
        del isolation
        return Opened(lambda: self._transaction(fence, limit, None))

    def open_blocking(  # noqa: D102
        self, fence: FenceCheck, limit: timedelta, isolation: Isolation
    ) -> AbstractContextManager[RedisTransaction]:
        del isolation
        return opened_blocking(lambda: self._transaction(fence, limit, self._wires))

    def close(self) -> None:
        """Close the connections of threads."""
        self._wires.close()

    def _transaction(self, fence: FenceCheck, limit: timedelta, wires: BlockingWires | None) -> RedisTransaction:
        if len(fence.leases) > MANY:
            raise ConfigError(f"a transaction on Redis completes at most {MANY:,} jobs: use smaller batches")
        return RedisTransaction(self._place, fence, limit, wires)


class NoCallers:
    """Refuses connections of callers."""

    def runner(self, using: object) -> NoReturn:  # noqa: ARG002
        """Refuse."""
        refuse_callers()

    def run_blocking(self, using: object, steps: Steps[T]) -> NoReturn:  # noqa: ARG002
        """Refuse."""
        steps.close()
        refuse_callers()


NO_TRANSACTIONS = (
    "MULTI compares no fence and undoes nothing: a completion in it could come too late, and a job could be enqueued "
    "although another command failed, or be missing although all others ran. Write through ctx.transaction(), or "
    "enqueue a job whose handler writes everything in its transaction"
)


def refuse_callers() -> NoReturn:
    """Raise `Unsupported`."""
    raise Unsupported(f"redis cannot join transactions: {NO_TRANSACTIONS}")
