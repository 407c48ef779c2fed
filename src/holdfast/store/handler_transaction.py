"""The transaction that a handler holds open, on any store.

```text
   begin ─▶ lock the lease by its fence ─▶ the handler's statements ─▶ fenced end ─▶ commit
                  │ stale                      │ raises, or too long      │ stale      │ reply lost
                  ▼                            ▼                          ▼            ▼
              LeaseLost                    rollback             rollback, LeaseLost  OutcomeUnknown: verify
```

For a task, the lease is that of the job and the fenced end is the completion; for a consumer, it is the grant of the
share and the position. A transaction over many jobs locks all their leases in one statement. Those found stale are left
out (`held` contains the others), and only if all are stale, it is refused; its end writes all outcomes.

A transaction is in one of these states. The thread that moves it out of OPEN, under the lock, decides its outcome: a
handler that returns cannot commit what the limit has already rolled back.

```text
   WAITING ─▶ OPEN ─▶ SEALED ─▶ ENDED      SEALED: about to commit, it can no longer expire
      │         ├───▶ EXPIRED              rolled back because it lasted longer than its limit
      │         └───▶ UNDONE               rolled back by the store itself, after an error inside it
      └───────▶ UNWANTED                   its handler was cancelled while it waited to begin
```
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from datetime import timedelta
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeVar

from holdfast.errors import ConfigError, HoldfastError, LeaseLost, StoreError, TransactionExpired
from holdfast.model.allocation import Grant
from holdfast.model.job import Lease
from holdfast.store.job_rows import Key
from holdfast.store.steps import Place, Ready, Steps
from holdfast.store.stream_values import Commit, CommitVerdict
from holdfast.store.values import Finish, Verdict


class TransactionState(Enum):
    """The state of a handler's transaction: see the module."""

    WAITING = "waiting"
    OPEN = "open"
    SEALED = "sealed"
    ENDED = "ended"
    EXPIRED = "expired"
    UNDONE = "undone"
    UNWANTED = "unwanted"


class FenceCheck(NamedTuple):
    """The fence that a handler's transaction depends on: of a job under its lease, or of a share under its grant.

    `name`, `remedy` (how to get a longer limit) and `loss` are for messages. `lock` locks the row of the job or share
    and returns whether the fence is current; it receives the limit in milliseconds. For many jobs it returns the leases
    that are held, as (seq, fence); if none is, the transaction is refused. `leases` are those of jobs, for a store that
    locks nothing, and looks again at the end.
    """

    name: str
    remedy: str
    loss: str
    lock: Callable[[int], Steps[bool] | Steps[frozenset[Key]]]
    leases: Sequence[Lease] = ()


class FencedVerbs(NamedTuple):
    """The verbs at the start and the end of a handler's transaction.

    `lock_job` and `lock_share` lock the row until the end of the transaction and return whether the fence is current;
    they receive the limit in milliseconds. `lock_jobs` locks those of many jobs and returns the leases that are held.
    `complete`, `finish` and `commit` write the completion, the outcomes of many jobs, or the position, fenced.
    """

    lock_job: Callable[[Lease, int], Steps[bool]]
    lock_jobs: Callable[[Sequence[Lease], int], Steps[frozenset[Key]]]
    complete: Callable[[Lease, str | None], Steps[Verdict]]
    finish: Callable[[Sequence[Finish]], Steps[list[Verdict]]]
    lock_share: Callable[[Grant, int], Steps[bool]]
    commit: Callable[[Grant, Commit], Steps[CommitVerdict]]


class OpenTransaction(ABC):
    """The part that is common to all drivers; a store implements the steps.

    `owner` identifies the store, so that only its verbs join. What a method with the type `Any` returns is awaited in
    the transaction of an async handler, and is the result itself in that of a handler that runs in a thread.
    """

    connection: Any

    def __init__(
        self,
        fence: FenceCheck,
        limit: timedelta,
        *,
        verbs: FencedVerbs,
        owner: object,
        became_ready: Callable[[Sequence[Place]], None],
    ) -> None:
        self.owner = owner
        self.after_commit: list[Callable[[], None]] = []
        self.ready = Ready()
        self.fence = fence
        self.limit = limit
        self.state = TransactionState.WAITING
        self.held: frozenset[Key] = frozenset()
        """In a transaction over many jobs, the leases that are held and locked, as (seq, fence)."""
        self._verbs = verbs
        self._became_ready = became_ready
        self._lock = threading.Lock()
        self._is_inside = False
        self._token: Token[OpenTransaction | None] | None = None

    @abstractmethod
    def begin(self) -> Any:
        """Begin, lock the lease and start the time limit."""

    @abstractmethod
    def end_with(self, steps: Steps[Any]) -> Any:
        """Run the verb that writes the fenced end."""

    @abstractmethod
    def commit_transaction(self) -> Any:
        """Commit, unless the last statement has done so; a cancellation does not interrupt it."""

    @abstractmethod
    def undo(self, error: BaseException) -> Any:
        """Roll back because of an error, in any state except WAITING; a cancellation does not interrupt it.

        After a commit it does nothing.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop the time limit; later calls no longer join."""

    def complete(self, lease: Lease, result: str | None) -> Any:
        """Write the fenced completion; a `Verdict`."""
        return self.end_with(self._verbs.complete(lease, result))

    def finish(self, finishes: Sequence[Finish]) -> Any:
        """Write the fenced outcomes of many jobs; a list of `Verdict`."""
        return self.end_with(self._verbs.finish(finishes))

    def commit(self, grant: Grant, commit: Commit) -> Any:
        """Write the fenced position; a `CommitVerdict`."""
        return self.end_with(self._verbs.commit(grant, commit))

    @property
    def concerns_children(self) -> bool:
        """Whether jobs with children have ended in it."""
        return self.ready.parents_changed

    @property
    def is_entered(self) -> bool:
        """Whether its handler is inside the block: the handler's calls then join it or, after a rollback, raise."""
        return self._is_inside and self.state not in {TransactionState.SEALED, TransactionState.ENDED}

    def move(self, old: TransactionState, new: TransactionState) -> bool:
        """Move from state `old` to `new`; return False, with nothing changed, if the state is not `old`."""
        with self._lock:
            if self.state is not old:
                return False
            self.state = new
            return True

    def seal(self) -> None:
        """Prevent its expiry before a commit; raise if it is already over."""
        if not self.move(TransactionState.OPEN, TransactionState.SEALED):
            raise self.over()

    def check_open(self) -> None:
        """Raise if the transaction was rolled back: a statement would commit separately."""
        if self.state is not TransactionState.OPEN:
            raise self.over()

    def lock_steps(self) -> Steps[None]:
        """Lock the lease, or many; raise `LeaseLost` if the fence is stale, or if all are."""
        held = yield from self.fence.lock(max(1, int(self.limit.total_seconds() * 1000)))
        if not held:
            raise LeaseLost(f"{self.fence.loss}. Nothing was written")
        if held is not True:
            self.held = held

    def committed(self) -> None:
        """Notify of jobs that became ready, and run the callbacks that waited for the commit."""
        if self.ready:
            self._became_ready(self.ready.places)
        for act in self.after_commit:
            act()

    def over(self) -> HoldfastError:
        """Return the error that says why no further statement can run."""
        match self.state:
            case TransactionState.EXPIRED:
                return TransactionExpired(
                    f"{self.fence.name}: its transaction was open longer than {self.limit.total_seconds():g} s and was "
                    "rolled back. Do slow work before the transaction and write only the effect inside it, or "
                    f"{self.fence.remedy}"
                )
            case TransactionState.UNDONE:
                return StoreError(
                    f"{self.fence.name}: the store rolled the transaction back after an error inside it (a full disk, "
                    "or a statement that asks for a rollback). Nothing was written: let the error end the attempt"
                )
            case _:
                return ConfigError("this transaction has ended: use its connection inside the `with` block only")

    def explain(self, error: Exception) -> None:  # noqa: B027 - a store without such errors has nothing to say
        """Raise what has happened to the transaction, if an error inside the block is due to that; else return."""

    def enter(self) -> None:
        """Make the handler's calls from here on join the transaction."""
        self._token = current.set(self)
        self._is_inside = True

    def leave(self) -> None:
        """End that."""
        self._is_inside = False
        if self._token is not None:
            current.reset(self._token)


current: ContextVar[OpenTransaction | None] = ContextVar("holdfast_transaction", default=None)


TransactionT = TypeVar("TransactionT", bound=OpenTransaction)


def is_inside(owner: object) -> bool:
    """Return whether the calling handler holds a transaction of this store open."""
    transaction = current.get()
    return transaction is not None and transaction.owner is owner and transaction.is_entered


def entered(owner: object, kind: type[TransactionT]) -> TransactionT | None:
    """Return the transaction of this store, of its kind, that the calling handler holds open."""
    transaction = current.get()
    return transaction if isinstance(transaction, kind) and is_inside(owner) else None


class Opened(Generic[TransactionT]):
    """Holds a transaction open for an async handler. A class: each async generator costs an effect some 8 µs."""

    def __init__(self, make: Callable[[], TransactionT]) -> None:
        self._make = make

    async def __aenter__(self) -> TransactionT:
        """Begin."""
        self._transaction = transaction = self._make()
        try:
            await transaction.begin()
        except BaseException as error:
            await self._undo(error)
            raise
        transaction.enter()
        return transaction

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Commit, or roll back after an error."""
        transaction = self._transaction
        transaction.leave()
        try:
            if error is None:
                await transaction.commit_transaction()
            elif isinstance(error, Exception):
                transaction.explain(error)
        except BaseException as raised:
            await self._undo(raised)
            raise
        if error is not None:
            await self._undo(error)
            return
        transaction.close()
        transaction.committed()

    async def _undo(self, error: BaseException) -> None:
        """Roll back; one that still waits to begin is rolled back as soon as it begins."""
        try:
            if not self._transaction.move(TransactionState.WAITING, TransactionState.UNWANTED):
                await self._transaction.undo(error)
        finally:
            self._transaction.close()


@contextmanager
def opened_blocking(make: Callable[[], TransactionT]) -> Generator[TransactionT]:
    """Hold a transaction open for a handler that runs in a thread."""
    transaction = make()
    try:
        transaction.begin()
        transaction.enter()
        try:
            yield transaction
        except Exception as error:
            transaction.explain(error)
            raise
        finally:
            transaction.leave()
        transaction.commit_transaction()
    except BaseException as error:
        if not transaction.move(TransactionState.WAITING, TransactionState.UNWANTED):
            transaction.undo(error)
        raise
    finally:
        transaction.close()
    transaction.committed()
