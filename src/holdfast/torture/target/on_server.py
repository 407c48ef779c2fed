"""What the targets on servers have in common: sessions, a lock that excludes other runs, the server's clock."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import ClassVar

from holdfast.errors import StoreUnavailable
from holdfast.torture.target.base import Query, Reserved, Target


class ServerTarget(Target):
    """A schema or database on a server, which runs the statements of its dialect."""

    has_server: ClassVar = True
    settings: ClassVar[tuple[str, ...]]
    """The settings of the server that a report names."""
    _reservation: tuple[ExitStack, Query] | None = None

    @abstractmethod
    def session(self) -> AbstractContextManager[Query]:
        """Open a session in a transaction, which is committed at the end; raises `StoreUnavailable`."""

    @contextmanager
    def reserved(self) -> Generator[None]:
        """Hold a lock of the server, in a session that is open as long."""
        self._reserve()
        try:
            yield
        finally:
            self._release()

    def _reserve(self) -> None:
        with ExitStack() as stack:
            query = stack.enter_context(self.session())
            query.all("outlast")
            if not query.all("reserve")[0][0]:
                raise Reserved(self.shown)
            self._reservation = stack.pop_all(), query

    def _release(self) -> None:
        if self._reservation is not None:
            stack, _ = self._reservation
            self._reservation = None
            with suppress(StoreUnavailable):  # the server has ended the session, and so the lock
                stack.close()

    def require_reservation(self) -> None:
        """Take the lock again if its session was lost, as when the server restarts; another run may have it by now."""
        if self._reservation is None:
            return
        _, query = self._reservation
        try:
            query.all("still_there")
        except self.errors:
            self._release()
            self._reserve()

    def exists(self) -> bool:
        """Return whether the schema or database is there."""
        with self.session() as query:
            return bool(query.all("exists")[0][0])

    def run(self, *names: str) -> None:
        """Run statements."""
        with self.session() as query:
            for name in names:
                query.all(name)

    @contextmanager
    def snapshot(self) -> Generator[Query]:
        """Read in one transaction."""
        with self.session() as query:
            query.all("frozen")
            yield query

    def clock(self) -> int:
        """Return the server's clock."""
        with self.session() as query:
            return int(query.all("clock")[0][0])

    def open_transactions(self) -> int:
        """Return how many sessions of workers and producers are idle in a transaction."""
        with self.session() as query:
            return int(query.all("count_open")[0][0])

    def open_connections(self) -> int:
        """Return how many sessions of workers and producers there are."""
        return len(self.sessions())

    def sessions(self) -> list[int]:
        """Return the sessions of workers and producers."""
        with self.session() as query:
            return [number for (number,) in query.all("sessions")]

    def terminate(self, sessions: list[int]) -> int:
        """Terminate sessions."""
        with self.session() as query:
            return sum(query.all("terminate", session=session)[0][0] for session in sessions)

    def versions(self) -> dict[str, str]:
        """Return the settings of the server."""
        with self.session() as query:
            return {name: str(query.all("show", setting=name)[0][0]) for name in self.settings}
