"""Opens handlers' transactions on Redis, and refuses those of callers."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import timedelta
from typing import NoReturn, TypeVar

from holdfast.backends.redis.handler_transaction import VERBS, RedisPlace, RedisTransaction
from holdfast.backends.redis.job_rows import MANY
from holdfast.backends.redis.wire import BlockingWires
from holdfast.errors import ConfigError, Unsupported
from holdfast.model.isolation import Isolation
from holdfast.store.fences import HandlersTransactions
from holdfast.store.handler_transaction import FenceCheck, Opened, opened_blocking
from holdfast.store.steps import Steps

T = TypeVar("T")


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
            raise ConfigError(f"a transaction on Redis is over {MANY:,} jobs at most: use smaller batches")
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
