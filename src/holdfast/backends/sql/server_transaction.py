"""What the handlers' transactions of server stores have in common, and how they are opened."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from holdfast.model.isolation import Isolation
from holdfast.store.connection_pool import AsyncPools, BlockingPool, Lending
from holdfast.store.fences import HandlersTransactions
from holdfast.store.handler_transaction import (
    FenceCheck,
    FencedVerbs,
    Opened,
    OpenTransaction,
    TransactionState,
    opened_blocking,
)
from holdfast.store.steps import Place, Steps

T = TypeVar("T")
Texts = TypeVar("Texts")


class Timer(Protocol):
    """A time limit that runs; in threads, an action of it that has begun has ended when `cancel` returns."""

    def cancel(self) -> None: ...  # noqa: D102


class TransactionPlace(NamedTuple, Generic[Texts]):
    """What all transactions of a store share. `suspect` is called when a connection breaks: idle ones may have, too."""

    statements: Texts
    verbs: FencedVerbs
    url: str
    reply_timeout: float
    suspect: Callable[[], None]
    became_ready: Callable[[Sequence[Place]], None]
    beside: Callable[[Any], Any] | None = None
    """Reads what is committed, on another connection, for a transaction with an older snapshot, if a store needs it."""


class ServerTransaction(OpenTransaction, Generic[Texts]):
    """A transaction on a connection of a pool."""

    def __init__(
        self,
        connection: Any,
        place: TransactionPlace[Texts],
        fence: FenceCheck,
        limit: timedelta,
        isolation: Isolation,
    ) -> None:
        super().__init__(fence, limit, verbs=place.verbs, owner=place.statements, became_ready=place.became_ready)
        self.connection = connection
        self.connection.failure = None
        self._place = place
        self._statements = place.statements
        self._reply_timeout = place.reply_timeout
        self._isolation: Isolation = isolation
        self.timer: Timer | None = None
        """The time limit, once it has begun."""
        self._began = time.monotonic()

    @property
    @abstractmethod
    def is_closed(self) -> bool:
        """Whether the connection has ended."""

    @property
    def is_past_limit(self) -> bool:
        """Whether it has been open for longer than its limit."""
        return time.monotonic() - self._began >= self.limit.total_seconds()

    @abstractmethod
    def check_whole(self) -> None:
        """Raise if the transaction has ended, or if a statement of the handler has ended it or made it fail."""

    def seal(self) -> None:
        """Check that it can commit, and stop it from expiring."""
        self.check_whole()
        super().seal()

    @contextmanager
    def explained(self, *, committing: bool = False) -> Generator[None]:
        """Translate errors of the driver to what happened to the transaction: see `explain`."""
        try:
            yield
        except Exception as error:
            self.explain(error, committing=committing)
            raise

    @abstractmethod
    def explain(self, error: Exception, *, committing: bool = False) -> None:
        """Raise what has happened to the transaction, in place of an error of the driver; else return.

        Errors of the handler's own statements pass unchanged while the connection is open. If the transaction has
        failed because of a conflict, that is raised, whatever the handler has made of it, unless it ends its attempt
        on purpose.
        """

    @abstractmethod
    async def run(self, steps: Steps[T]) -> T:
        """Run a verb that joins the transaction."""

    def close(self) -> None:
        """Accept no further calls; report idle connections as suspect if this one broke by itself."""
        self.cancel_timer()
        broke = self.is_closed and self.state is not TransactionState.EXPIRED
        self.state = TransactionState.ENDED
        if broke:
            self._place.suspect()

    def cancel_timer(self) -> None:
        """Stop the time limit, if it has begun."""
        if self.timer is not None:
            self.timer.cancel()


class ServerTransactions(HandlersTransactions, Generic[Texts]):
    """Opens handlers' transactions, on other connections than those of the verbs."""

    def __init__(
        self,
        pools: AsyncPools[Any],
        blocking: BlockingPool[Any],
        place: TransactionPlace[Texts],
        kind: type[ServerTransaction[Texts]],
        blocking_kind: type[ServerTransaction[Texts]],
    ) -> None:
        """`kind` is that of transactions for async handlers, `blocking_kind` for those in threads."""
        super().__init__(place.verbs)
        self._pools = pools
        self._blocking = blocking
        self._place = place
        self._kind = kind
        self._blocking_kind = blocking_kind

    def open(  # noqa: D102
        self, fence: FenceCheck, limit: timedelta, isolation: Isolation
    ) -> AbstractAsyncContextManager[ServerTransaction[Texts]]:
        make = partial(self._kind, place=self._place, fence=fence, limit=limit, isolation=isolation)
        return _OnPooledConnection(self._pools.here.connection(), make)

    @contextmanager
    def open_blocking(  # noqa: D102
        self, fence: FenceCheck, limit: timedelta, isolation: Isolation
    ) -> Generator[ServerTransaction[Texts]]:
        with self._blocking.connection() as connection:
            make = partial(self._blocking_kind, connection, self._place, fence, limit, isolation)
            with opened_blocking(make) as transaction:
                yield transaction


class _OnPooledConnection(Generic[Texts]):
    """A transaction on a connection that is lent to it; a class for the same reason as `Opened`."""

    def __init__(self, lending: Lending[Any], make: Callable[[Any], ServerTransaction[Texts]]) -> None:
        self._lending = lending
        self._make = make

    async def __aenter__(self) -> ServerTransaction[Texts]:
        connection = await self._lending.__aenter__()
        self._opened = Opened(partial(self._make, connection))
        try:
            return await self._opened.__aenter__()
        except BaseException:
            await self._lending.__aexit__()
            raise

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            await self._opened.__aexit__(kind, error, trace)
        finally:
            await self._lending.__aexit__()
