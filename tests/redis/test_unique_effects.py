"""What an enqueue in a handler's transaction has found is still true when the effect is written."""

# ruff: noqa: PT012 - what a transaction raises is raised out of its block

from __future__ import annotations

import pytest
from tests.redis.ending import acting_before
from tests.redis.whole import check_whole
from tests.servers.redis import connection_of

from holdfast.backends.redis.backend import RedisBackend
from holdfast.errors import TransactionConflict
from holdfast.model.conditions import UniqueScope
from holdfast.store.values import Standing
from holdfast.testing.conformance.base import LEASE, claim, enqueue, hold_one
from holdfast.testing.conformance.queued_effects import meanwhile
from holdfast.testing.conformance.unique import unique


@pytest.mark.parametrize("scope", [UniqueScope.WAITING, UniqueScope.UNFINISHED])
async def test_an_effect_that_found_its_unique_job_is_a_conflict_if_that_changes_before_it_is_written(
    backend: RedisBackend, url: str, monkeypatch: pytest.MonkeyPatch, scope: UniqueScope
):
    """The job may have started before the effect is written: it would not see it."""
    job = await hold_one(backend)
    holder, another = unique("k", scope, task="other"), unique("k", scope, task="other")
    await enqueue(backend, holder)

    async def change() -> None:
        if scope is UniqueScope.WAITING:
            assert [each.id for each in await claim(backend, tasks=["other"])] == [holder.id]
        else:
            assert await backend.jobs.cancel(holder.id, "no longer wanted")

    with monkeypatch.context() as patch, pytest.raises(TransactionConflict):
        acting_before(patch, 1, lambda: meanwhile(change()), "effect")
        async with backend.transactions.begin(job.lease, limit=LEASE) as transaction:
            transaction.connection.queue("INCR", transaction.connection.key("total"))
            assert await backend.jobs.enqueue([another]) == [holder.id]
            await transaction.complete(job.lease, None)
    assert connection_of(url).keys(backend._parts.here.server.location.prefix.replace("}:", "}/*")) == []
    assert await backend.jobs.verify(job.lease) is Standing.HELD
    check_whole(url)
