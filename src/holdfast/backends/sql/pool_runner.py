"""Runs each verb on a connection of the pool, or inside the transaction that the calling handler holds open."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from holdfast.store.connection_pool import AsyncPools
from holdfast.store.handler_transaction import OpenTransaction, entered
from holdfast.store.steps import Place, Runner, Verb

T = TypeVar("T")
W = TypeVar("W")
X = TypeVar("X", bound=OpenTransaction)


class _Located(Protocol):
    """Where a store is."""

    @property
    def url(self) -> str: ...

    @property
    def reply_timeout(self) -> float: ...


class Ways(NamedTuple, Generic[W]):
    """How the methods of these names run a verb."""

    once: W
    look: W
    write: W
    write_briefly: W
    read: W
    apart: W


class SqlPoolRunner(ABC, Generic[W, X]):
    """A `Runner` over the pools of a driver. `W` is how a verb runs: in a transaction or not, reading or writing."""

    ways: Ways[W]
    transaction: type[X]
    """The kind of a handler's transaction."""

    def __init__(
        self,
        pools: AsyncPools[Any],
        statements: Any,
        location: _Located,
        became_ready: Callable[[Sequence[Place]], None],
    ) -> None:
        """`became_ready` is called after a commit that made jobs ready, with their places."""
        self._became_ready = became_ready
        self._pools = pools
        self._statements = statements
        self._where = location.url
        self._reply_timeout = location.reply_timeout

    def once(self, verb: Verb[T]) -> Awaitable[T]:
        """Run statements that commit by themselves; raise `OutcomeUnknown` if a reply is lost."""
        return self._run(verb, self.ways.once)

    def look(self, verb: Verb[T]) -> Awaitable[T]:
        """Run statements that change nothing."""
        return self._run(verb, self.ways.look)

    def write(self, verb: Verb[T]) -> Awaitable[T]:
        """Run one transaction."""
        return self._run(verb, self.ways.write)

    def write_briefly(self, verb: Verb[T]) -> Awaitable[T]:
        """Run one transaction that waits for a lock no longer than a second or so; then raise `LockedTooLong`."""
        return self._run(verb, self.ways.write_briefly)

    def read(self, verb: Verb[T]) -> Awaitable[T]:
        """Run one read-only transaction with one snapshot."""
        return self._run(verb, self.ways.read)

    def apart(self, verb: Verb[T]) -> Awaitable[T]:
        """Run a verb that commits independently of the handler's transaction."""
        return self._repeat(verb, self.ways.apart)

    def losses(self) -> int:
        """Return the number of broken connections so far, after a check of the connection that is used next."""
        self._pools.here.weed()
        return self._pools.losses

    @property
    def joins(self) -> bool:
        """Whether the current call runs inside a handler's transaction."""
        return self._entered() is not None

    @property
    def is_alone(self) -> bool:
        """Whether the current call has a separate transaction."""
        return not self.joins

    def after_commit(self, act: Callable[[], None]) -> None:
        """Call `act` once the writes are visible: now, or when the handler's transaction has committed."""
        transaction = self._entered()
        if transaction is not None:
            transaction.after_commit.append(act)
        else:
            act()

    def _entered(self) -> X | None:
        """Return the transaction of this store that the calling handler holds open."""
        return entered(self._statements, self.transaction)

    def _run(self, verb: Verb[T], way: W) -> Awaitable[T]:
        transaction = self._entered()
        return self._repeat(verb, way) if transaction is None else self._joined(transaction, verb)

    @abstractmethod
    async def _joined(self, transaction: X, verb: Verb[T]) -> T:
        """Run a verb in a handler's transaction, if that is open and has not failed; never outside of it."""

    @abstractmethod
    async def _repeat(self, verb: Verb[T], way: W) -> T:
        """Run a verb on a connection of the pool; if it conflicts with another transaction, a few times."""


def runs_alone(runner: Runner) -> bool:
    """Return whether the next verb of a runner has a separate transaction, in which a COPY or a repeat may run."""
    return getattr(runner, "is_alone", False)
