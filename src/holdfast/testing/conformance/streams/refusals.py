"""Refusals: what a store with streams does not support raises `Unsupported` with a reason."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

import pytest

from holdfast.errors import ConfigError, Unsupported
from holdfast.store.backend import Backend
from holdfast.testing.conformance.streams.base import LONG, StreamConformance, consuming


class TestStreamRefusals(StreamConformance):
    """`Capabilities` and the refusals for streams that follow from them."""

    async def test_a_store_that_joins_no_transactions_refuses_to_begin_one(self, backend: Backend) -> None:
        if backend.capabilities.joins_transactions:
            pytest.skip(f"{backend.capabilities.store} joins transactions")
        grant = await consuming(backend, "a")
        with pytest.raises(Unsupported):
            async with backend.streams.consumers.begin(grant, limit=LONG):
                pass
        with pytest.raises(Unsupported), backend.streams.consumers.begin_blocking(grant, limit=LONG):
            pass
        with pytest.raises(Unsupported):
            backend.streams.join(object())

    async def test_a_connection_of_an_unknown_kind_is_refused(self, backend: Backend) -> None:
        with pytest.raises((ConfigError, Unsupported)):
            backend.streams.join(object())
