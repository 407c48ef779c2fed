"""A store under torture: created by the run, read through the driver alone, and dropped by the run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import msgspec

from holdfast.app.app import App
from holdfast.app.open import open_backend
from holdfast.errors import ConfigError
from holdfast.store.capabilities import Capabilities
from holdfast.torture.target.jobs import JobReader
from holdfast.torture.target.streams import StreamReader

if TYPE_CHECKING:
    from holdfast.torture.proxy import Proxy
    from holdfast.torture.target.kafka_events import KafkaRunEvents
    from holdfast.torture.target.statements import TargetStatements

TABLES = ("effect", "step", "stream_effect")
"""The tables that a run creates in addition to Holdfast's."""
NOTHING = "There was nothing to remove."


class Reserved(ConfigError):  # noqa: N818 - reads as the sentence it states
    """Another run uses the target."""

    def __init__(self, shown: str) -> None:
        super().__init__(
            f"another torture run uses {shown}: wait for its end, or name another database, schema or file"
        )


class Foreign(ConfigError):  # noqa: N818 - reads as the sentence it states
    """The target was not created by a run, or holds something that is not of a run."""


class Leftovers(msgspec.Struct, frozen=True, kw_only=True):
    """What is still there after all workers have ended, and should not be."""

    leases: int = 0
    transactions: int = 0
    connections: int = 0
    integrity: str = ""


class Query(Protocol):
    """Reads statements by name, all in one snapshot of the store."""

    def all(self, name: str, **names: str | int) -> list[tuple[Any, ...]]:
        """Return all rows."""
        ...

    def each(self, name: str) -> Iterator[tuple[Any, ...]]:
        """Go over rows that may be too many for memory."""
        ...


class Target(ABC):
    """A store under torture. Every call opens a connection and closes it.

    A run creates the file, schema or database of its target and drops it at the end. The marker, a table that is
    created with it, lists what the run has created there. What exists without the marker is refused, and so is what
    holds more than the marker lists: neither is ever changed.
    """

    store: ClassVar[str]
    """How reports call the store."""
    has_server: ClassVar[bool] = False
    """Whether the store is reached by a network, with sessions that can be ended and a separate clock."""
    one_writer: ClassVar[bool] = False
    """Whether a process that is frozen inside a transaction blocks all other writers."""
    has_snapshots: ClassVar[bool] = True
    """Whether a snapshot can be held open."""
    has_pipelines: ClassVar[bool] = False
    """Whether the driver has pipelines and COPY."""
    creating: ClassVar[tuple[str, ...]] = ("create_marker",)
    """The statements that create the target, empty but for the marker."""
    errors: tuple[type[Exception], ...]
    """What the driver raises."""

    def __init__(self, url: str, shown: str, statements: TargetStatements | None) -> None:
        self.url = url
        """The URL for Holdfast."""
        self.shown = shown
        """The URL without its password."""
        self._statements = statements
        self.jobs = JobReader(self.snapshot)
        self.streams = StreamReader(self.snapshot)

    @property
    def capabilities(self) -> Capabilities:
        """What the store can do."""
        return open_backend(self.url).capabilities

    @property
    def events(self) -> KafkaRunEvents | None:
        """The events of the run, if they are not in the store."""
        return self.streams.elsewhere

    def keep_events_in(self, events: KafkaRunEvents) -> None:
        """Let the events of the run be in Kafka."""
        self.streams.elsewhere = events
        self.shown = f"{self.shown}, events in {events.shown}"

    def app(self) -> App:
        """Return an app on the target."""
        return App(self.url, events=None if self.events is None else self.events.url)

    @property
    def statements(self) -> TargetStatements:
        """The statements in the dialect of the store, for the transactions of a run."""
        if self._statements is None:
            raise NotImplementedError(f"{self.store} has no statements")
        return self._statements

    # --- created and dropped ----------------------------------------------------------------------------------------

    @abstractmethod
    def reserved(self) -> AbstractContextManager[None]:
        """Exclude other runs inside the block; raises `Reserved` if there is one."""

    def require_reservation(self) -> None:  # noqa: B027 - nothing to do unless the store can take a lock away
        """Raise `Reserved` if the reservation was lost to another run."""

    def require_own(self) -> None:
        """Raise `Foreign` unless nothing is there, or only what an earlier run has left."""
        if not self.exists():
            return
        other = "name a database, schema or file that does not exist"
        with self.snapshot() as query:
            if not query.all("has_marker")[0][0]:
                raise Foreign(f"{self.shown} exists, and was not created by a torture run: {other}")
            count = query.all("count_unlisted")[0][0]
            if not count and query.all("listed"):
                count = query.all("count_foreign")[0][0] + query.all("count_foreign_streams")[0][0]
        if count:
            raise Foreign(
                f"{self.shown} was created by a torture run, and holds {count} jobs, tables or other things that are "
                f"not of a torture run: remove it if you need none of them, or {other}"
            )

    def create(self) -> None:
        """Create the target with its marker, and drop first what an earlier run has left; raises as `require_own`."""
        self.drop()
        if self.events is not None:
            self.events.create()
        self.run(*self.creating)

    def prepare(self) -> None:
        """Create the tables of the run, once Holdfast's are there, and list all of them in the marker."""
        self.run(*(f"{step}_{table}" for table in TABLES for step in ("create", "index")), "list")

    def drop(self) -> str:
        """Drop what a run has created, and return what was done; raises as `require_own`."""
        self.require_reservation()
        if not self.exists():
            return NOTHING
        self.require_own()
        self.remove()
        if self.events is not None:
            self.events.drop()
        return f"{self.shown} is gone."

    @abstractmethod
    def exists(self) -> bool:
        """Return whether the file, schema or database is there."""

    @abstractmethod
    def remove(self) -> None:
        """Remove the target; raises `Foreign` if that would remove or break anything that the marker does not list."""

    # --- read and written -------------------------------------------------------------------------------------------

    def run(self, *names: str) -> None:
        """Run statements in one transaction."""
        raise NotImplementedError(f"{self.store} has no statements, not even {', '.join(names)}")

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[Query]:
        """Read in one snapshot."""

    @contextmanager
    def held_snapshot(self) -> Generator[None]:
        """Hold a snapshot open, as a backup or a forgotten session does."""
        with self.snapshot() as query:
            query.all("hold")
            yield

    def write(self, connection: Any, table: str, values: tuple[Any, ...], line: str) -> Any:
        """Write an effect or a step in a handler's transaction; what it returns is awaited if that is async.

        Effects of one `line`, an order key or a job, are kept in the order in which they were written.
        """
        del line  # all are in one table
        return connection.execute(self.statements[f"insert_{table}"], values)

    def connection(self) -> AbstractContextManager[Any]:
        """Open a connection of the driver in a transaction, as a user's program does; raises `StoreUnavailable`."""
        raise NotImplementedError(f"{self.store} has no transaction of the driver that can be joined")

    # --- observed ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def clock(self) -> int:
        """Return the store's clock, in microseconds."""

    def leftovers(self) -> Leftovers:
        """Return what a run should not leave behind."""
        with self.snapshot() as query:
            leases = query.all("count_state", state="running")[0][0] + query.all("count_owned")[0][0]
        transactions, connections = self.open_transactions(), self.open_connections()
        return Leftovers(leases=leases, transactions=transactions, connections=connections, integrity=self.integrity())

    def open_transactions(self) -> int:
        """Return how many transactions of the run are open: none, where a script is all or nothing."""
        return 0

    @abstractmethod
    def open_connections(self) -> int:
        """Return how many connections or processes of the run use the store."""

    @abstractmethod
    def integrity(self) -> str:
        """Return what is damaged, or an empty text."""

    @abstractmethod
    def versions(self) -> dict[str, str]:
        """Return versions and settings for the report; no secrets."""

    # --- attacked ---------------------------------------------------------------------------------------------------

    def proxy(self) -> Proxy | None:
        """Start a proxy before the server; None where there is none."""
        return None

    def is_encrypted(self) -> bool:
        """Return whether statements cannot be read on their way to the store."""
        return False

    def sessions(self) -> list[int]:
        """Return the sessions of workers and producers."""
        return []

    def terminate(self, sessions: list[int]) -> int:
        """End sessions, and return how many of them there still were; raises `StoreUnavailable`."""
        del sessions  # there are none
        return 0
