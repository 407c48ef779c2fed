"""The transaction that a handler holds open, on any SQL store.

```text
   begin ─▶ lock the lease by its fence ─▶ the handler's statements ─▶ fenced end ─▶ commit
                  │ stale                      │ raises, or too long      │ stale      │ reply lost
                  ▼                            ▼                          ▼            ▼
              LeaseLost                    rollback             rollback, LeaseLost  OutcomeUnknown: verify
```

For a task the lease is the job's and the end is the completion; for a consumer they are the share's and the position.

A driver keeps the transaction in one of these states. The thread that takes it out of OPEN, under the lock, decides
what becomes of it: a handler that returns cannot commit what the limit has already rolled back.

```text
   WAITING ─▶ OPEN ─▶ SEALED ─▶ ENDED      about to commit: it can no longer expire
      │         ├───▶ EXPIRED              rolled back because it lasted longer than its limit
      │         └───▶ UNDONE               rolled back by the store itself, at an error inside it
      └───────▶ UNWANTED                   its handler was cancelled while it waited for its turn
```
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from contextvars import ContextVar
from datetime import timedelta
from enum import Enum
from typing import NamedTuple, TypeVar

from holdfast.backends.sql.steps import Place, Ready
from holdfast.errors import ConfigError, HoldfastError, StoreError, TransactionExpired
from holdfast.store.steps import Steps

T = TypeVar("T")


class TransactionState(Enum):
    """Where a handler's transaction stands: see the module."""

    WAITING = "waiting"
    OPEN = "open"
    SEALED = "sealed"
    ENDED = "ended"
    EXPIRED = "expired"
    UNDONE = "undone"
    UNWANTED = "unwanted"


class FenceCheck(NamedTuple):
    """What a handler's transaction rests on: a job under its lease, or a share under its grant.

    `name` and `remedy` (how to get a longer limit) are for messages. `lock` locks the lease's row and raises
    `LeaseLost` if the fence is stale; it is given the limit in milliseconds.
    """

    name: str
    remedy: str
    lock: Callable[[int], Steps[None]]


class OpenTransaction:
    """What the drivers share. `owner` identifies the store, so that only its own verbs join."""

    def __init__(
        self,
        fence: FenceCheck,
        limit: timedelta,
        *,
        owner: object,
        became_ready: Callable[[Sequence[Place]], None],
    ) -> None:
        self.owner = owner
        self.after_commit: list[Callable[[], None]] = []
        self.ready = Ready()
        self.fence = fence
        self.limit = limit
        self.state = TransactionState.WAITING
        self._became_ready = became_ready
        self._lock = threading.Lock()
        self._is_inside = False

    @property
    def is_entered(self) -> bool:
        """Whether its handler is inside the block: its calls join it or, once it was rolled back, are refused."""
        return self._is_inside and self.state not in {TransactionState.SEALED, TransactionState.ENDED}

    def move(self, old: TransactionState, new: TransactionState) -> bool:
        """Go from one state to another; False, with nothing changed, if it is in neither of them any more."""
        with self._lock:
            if self.state is not old:
                return False
            self.state = new
            return True

    def seal(self) -> None:
        """Keep it from expiring: it is about to commit."""
        if not self.move(TransactionState.OPEN, TransactionState.SEALED):
            raise self.over()

    def check_open(self) -> None:
        """Refuse a call inside a transaction that was rolled back: it would commit on its own."""
        if self.state is not TransactionState.OPEN:
            raise self.over()

    def lock_steps(self) -> Steps[None]:
        """Return the verb that locks the lease, or raises `LeaseLost`."""
        return self.fence.lock(max(1, int(self.limit.total_seconds() * 1000)))

    def committed(self) -> None:
        """Report what waited for the commit."""
        if self.ready:
            self._became_ready(self.ready.places)
        for act in self.after_commit:
            act()

    def over(self) -> HoldfastError:
        """Return why no statement can run in it any more."""
        match self.state:
            case TransactionState.EXPIRED:
                return TransactionExpired(
                    f"{self.fence.name}: its transaction was open longer than {self.limit.total_seconds():g} s and was "
                    "rolled back. Do slow work before the transaction and write only the effect inside it, or "
                    f"{self.fence.remedy}"
                )
            case TransactionState.UNDONE:
                return StoreError(
                    f"{self.fence.name}: the store has rolled its transaction back at an error inside it (a full disk, "
                    "or a statement that asks for a rollback). Nothing of it was written: let the error end the attempt"
                )
            case _:
                return ConfigError("this transaction has ended: use its connection inside the `with` block only")

    def explained(self) -> AbstractContextManager[None]:
        """Return a block in which errors of the driver become what they mean for the transaction."""
        return nullcontext()

    @contextmanager
    def joined(self) -> Generator[None]:
        """Let calls of the handler join it."""
        token = current.set(self)
        self._is_inside = True
        try:
            yield
        finally:
            self._is_inside = False
            current.reset(token)


current: ContextVar[OpenTransaction | None] = ContextVar("holdfast_transaction", default=None)


def entered(owner: object) -> OpenTransaction | None:
    """Return the transaction of this store that the calling handler holds open."""
    transaction = current.get()
    if transaction is None or transaction.owner is not owner or not transaction.is_entered:
        return None
    return transaction


class AsyncTransaction(OpenTransaction, ABC):
    """A transaction of an async handler; a store implements the steps."""

    @abstractmethod
    async def begin(self) -> None:
        """Begin, lock the lease and start the time limit."""

    @abstractmethod
    async def commit_transaction(self) -> None:
        """Commit, unless that was done with the last statement; a cancellation does not interrupt it."""

    @abstractmethod
    async def undo(self) -> None:
        """Roll back, in whatever state it is; a cancellation does not interrupt it. No harm after a commit."""

    @abstractmethod
    def close(self) -> None:
        """Stop the time limit, and let nothing join any more."""


class BlockingTransaction(OpenTransaction, ABC):
    """A transaction of a handler in a thread: as `AsyncTransaction`."""

    @abstractmethod
    def begin(self) -> None:
        """Begin, lock the lease and start the time limit."""

    @abstractmethod
    def commit_transaction(self) -> None:
        """Commit."""

    @abstractmethod
    def undo(self, error: BaseException) -> None:
        """Roll back because of an error."""

    @abstractmethod
    def close(self) -> None:
        """Stop the time limit, and let nothing join any more."""


AsyncT = TypeVar("AsyncT", bound=AsyncTransaction)
BlockingT = TypeVar("BlockingT", bound=BlockingTransaction)


@asynccontextmanager
async def opened(transaction: AsyncT) -> AsyncGenerator[AsyncT]:
    """Hold a transaction open for an async handler."""
    try:
        await transaction.begin()
        with transaction.explained(), transaction.joined():
            yield transaction
        await transaction.commit_transaction()
    except BaseException:
        await transaction.undo()
        raise
    finally:
        transaction.close()
    transaction.committed()


@contextmanager
def opened_blocking(transaction: BlockingT) -> Generator[BlockingT]:
    """Hold a transaction open for a handler in a thread."""
    try:
        transaction.begin()
        with transaction.explained(), transaction.joined():
            yield transaction
        transaction.commit_transaction()
    except BaseException as error:
        transaction.undo(error)
        raise
    finally:
        transaction.close()
    transaction.committed()
