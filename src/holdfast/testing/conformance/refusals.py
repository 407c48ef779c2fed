"""Refusals: what a store does not support raises `Unsupported` immediately, with a reason."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

import pytest

from holdfast.errors import ConfigError, Unsupported
from holdfast.store.backend import Backend
from holdfast.store.capabilities import QUEUE_EFFECTS
from holdfast.testing.conformance.base import LEASE, Conformance, hold_one


class TestRefusals(Conformance):
    """`Capabilities` and the refusals that follow from them."""

    async def test_every_refusal_has_a_reason_and_raises_unsupported_with_it(self, backend: Backend) -> None:
        capabilities = backend.capabilities
        for what, reason in capabilities.refusals.items():
            assert reason.strip()
            with pytest.raises(Unsupported) as refused:
                capabilities.require(what)
            assert reason in str(refused.value)
            assert capabilities.store in str(refused.value)

    async def test_what_is_not_refused_is_allowed(self, backend: Backend) -> None:
        backend.capabilities.require("something that is not refused")

    async def test_a_store_that_lacks_something_says_why(self, backend: Backend) -> None:
        capabilities = backend.capabilities
        if not (capabilities.joins_transactions and capabilities.shared):
            assert capabilities.refusals

    async def test_a_store_that_commits_no_effects_refuses_to_begin_a_transaction(self, backend: Backend) -> None:
        if backend.capabilities.commits_effects:
            pytest.skip(f"{backend.capabilities.store} commits effects")
        job = await hold_one(backend)
        with pytest.raises(Unsupported):
            async with backend.transactions.begin(job.lease, limit=LEASE):
                pass
        with pytest.raises(Unsupported), backend.transactions.begin_blocking(job.lease, limit=LEASE):
            pass

    async def test_a_store_that_queues_no_effects_says_what_to_do_instead(self, backend: Backend) -> None:
        if backend.capabilities.queues_effects:
            pytest.skip(f"{backend.capabilities.store} queues effects")
        with pytest.raises(Unsupported, match=QUEUE_EFFECTS):
            backend.capabilities.require(QUEUE_EFFECTS)

    async def test_a_store_that_joins_no_transactions_refuses_those_of_callers(self, backend: Backend) -> None:
        if backend.capabilities.joins_transactions:
            pytest.skip(f"{backend.capabilities.store} joins transactions")
        job = await hold_one(backend)
        with pytest.raises(Unsupported):
            backend.transactions.join(object())
        with pytest.raises(Unsupported):
            backend.transactions.complete(job.lease, None, using=object())

    async def test_a_connection_of_an_unknown_kind_is_refused(self, backend: Backend) -> None:
        job = await hold_one(backend)
        with pytest.raises((ConfigError, Unsupported)):
            backend.transactions.join(object())
        with pytest.raises((ConfigError, Unsupported)):
            backend.transactions.complete(job.lease, None, using=object())
