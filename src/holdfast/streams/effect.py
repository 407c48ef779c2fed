"""The effect of an attempt at an event: it commits together with the consumer's position, fenced by the generation."""

from __future__ import annotations

import contextlib
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import timedelta
from typing import Any

from holdfast.errors import ConfigError, LeaseLost, OutcomeUnknown, StoreError
from holdfast.model.allocation import Grant
from holdfast.model.isolation import Isolation
from holdfast.runtime.effect import Effect, EffectStage
from holdfast.store.backend import Backend
from holdfast.store.consumers import ConsumerStore
from holdfast.store.stream_values import Commit, CommitVerdict


class StreamUnparked(Exception):  # noqa: N818
    """A stream was unparked while another of its events was about to be parked: fetch again."""


class EventEffect(Effect):
    """The effect of one attempt at an event or a batch; `commit` is the position that commits with it."""

    def __init__(self, backend: Backend, grant: Grant, commit: Commit, limit: timedelta) -> None:
        super().__init__(backend, limit)
        self.grant = grant
        self.commit = commit

    @property
    def is_unknown(self) -> bool:
        """Whether a commit was sent whose outcome is unknown."""
        return self.stage is EffectStage.COMMITTING

    @property
    def _consumers(self) -> ConsumerStore:
        return self.backend.streams.consumers

    def refuse_second(self) -> None:
        """Refuse a second transaction: the store would treat its commit as a repeat, and keep both effects."""
        if self.is_committed:
            message = "effect and position are already committed: use one transaction for each event or batch"
            raise ConfigError(message)
        if self.is_unknown:
            message = (
                "the outcome of the first transaction of this event is unknown: "
                "let the handler raise, and the event is handled again if it was not committed"
            )
            raise OutcomeUnknown(message)

    def begin(self, isolation: Isolation) -> AbstractAsyncContextManager[Any]:
        """Open a transaction under the grant."""
        return self._consumers.begin(self.grant, limit=self.limit, isolation=isolation)

    def begin_blocking(self, isolation: Isolation) -> AbstractContextManager[Any]:
        """Open a transaction under the grant, with blocking calls."""
        return self._consumers.begin_blocking(self.grant, limit=self.limit, isolation=isolation)

    def write_end(self, transaction: Any) -> Any:
        """Write the position."""
        return transaction.commit(self.grant, self.commit)

    def is_accepted(self, verdict: Any) -> bool:
        """Return whether the position was written."""
        return verdict is CommitVerdict.DONE

    async def refusal(self, verdict: Any) -> Exception:
        """Return `LeaseLost`, or `StreamUnparked`."""
        if verdict is CommitVerdict.UNPARKED:
            return StreamUnparked()
        self.lease_lost.set()
        share = self.grant.share
        return LeaseLost(
            f"partition {share.partition_id} of {share.category} of consumer {share.consumer} was taken from this node "
            f"(generation {self.grant.generation} is stale): nothing was written, and the new owner continues"
        )

    async def ask(self) -> EffectStage:
        """Ask the store for the position; inconclusive if the commit does not move it, or the grant is stale."""
        position = await self._consumers.verify(self.grant)
        if position is None or self.commit.position == self.commit.after:
            return EffectStage.COMMITTING
        return EffectStage.COMMITTED if position == self.commit.position else EffectStage.OPEN

    async def find_out(self) -> None:
        """Ask the store, if it can be reached, for the outcome of a commit that was unknown when the handler ended."""
        if self.is_unknown:
            with contextlib.suppress(StoreError):  # the outcome stays unknown
                self.stage = await self.ask()
