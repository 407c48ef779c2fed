"""Notifications on SQLite: what is committed while the watching connection is being opened is noticed, too."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from holdfast.backends.sqlite.connection import Connection
from holdfast.backends.sqlite.notifier import SqliteNotifier
from holdfast.testing.conformance.base import a_job, enqueue
from holdfast.testing.conformance.notify import TIMEOUT, waker
from holdfast.testing.stores import open_store


async def test_a_commit_before_the_first_look_of_the_watching_connection_is_notified_of(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with open_store(url) as backend:
        connecting, may_look = threading.Event(), threading.Event()
        original = backend.notifier._watch.args[0]  # type: ignore[attr-defined]

        def connect() -> Connection:
            connecting.set()
            assert may_look.wait(TIMEOUT)
            return original()  # type: ignore[no-any-return]

        notifier = SqliteNotifier(connect)
        woken, wake = waker()
        notifier.listen(wake)
        assert await asyncio.to_thread(connecting.wait, TIMEOUT)
        await enqueue(backend, a_job())  # as another process does
        may_look.set()
        async with asyncio.timeout(TIMEOUT):
            await woken.wait()
        notifier.close()
