"""Schema: installs into an empty store, is repeatable, is checked, and can be printed without a connection."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

from typing import ClassVar

from holdfast.store.backend import Backend
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import Conformance, MakeBackend, hold_one, snapshot, state_of


class TestSchema(Conformance):
    """`Schema` and `Backend.open`."""

    async def test_install_may_be_repeated_and_leaves_jobs_as_they_are(self, backend: Backend) -> None:
        job = await hold_one(backend)
        before = await snapshot(backend, job.id)
        version = await backend.schema.install()
        assert await backend.schema.install() == version
        assert await backend.schema.install(only_existing=True) == version
        assert version >= 1
        assert await snapshot(backend, job.id) == before

    async def test_check_returns_the_version_of_an_installed_store(self, backend: Backend) -> None:
        assert await backend.schema.check() == await backend.schema.install()

    async def test_the_script_is_returned_without_connecting(self, backend: Backend) -> None:
        script = backend.schema.script()
        assert script.strip()
        await backend.close()
        assert backend.schema.script() == script

    async def test_open_is_safe_to_call_again(self, backend: Backend) -> None:
        job = await hold_one(backend)
        await backend.open()
        await state_of(backend, job.id)

    async def test_the_url_and_the_facts_are_shown(self, backend: Backend, clock: ManualClock) -> None:
        assert ":" in backend.url
        facts = await backend.insight.facts()
        assert facts["now_us"] == str(clock())
        assert backend.capabilities.store
        assert backend.capabilities.durability

    async def test_an_open_embedded_store_names_a_file_that_exists(self, backend: Backend) -> None:
        assert backend.file is None or backend.file.is_file()


class TestSharedSchema(Conformance):
    """`Schema` with several backends on one store."""

    needs: ClassVar[frozenset[str]] = frozenset({"shared"})

    async def test_a_second_backend_finds_the_tables_installed(
        self, backend: Backend, make_backend: MakeBackend
    ) -> None:
        other = await make_backend()
        await other.schema.check()
        assert await other.schema.install() == await backend.schema.install()

    async def test_what_was_committed_is_there_after_all_have_closed(
        self, backend: Backend, make_backend: MakeBackend
    ) -> None:
        job = await hold_one(backend)
        before = await snapshot(backend, job.id)
        await backend.close()
        assert await snapshot(await make_backend(), job.id) == before
