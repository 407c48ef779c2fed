"""Verbs without I/O, and the runners that execute them.

A verb is a generator. It yields requests that only its store understands and receives the answers, so one definition
runs on an async connection, on a blocking one, in a handler's transaction and in the caller's transaction. Rules above
the port compose the store's generators with `yield from` and never see a request.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from holdfast.errors import StoreUnavailable

T = TypeVar("T")

Steps = Generator[Any, Any, T]
Verb = Callable[[], Steps[T]]


class LockedTooLong(StoreUnavailable):
    """Another transaction kept a row locked for longer than this one waits: nothing was written."""


class Runner(Protocol):
    """Runs verbs. A verb is passed as a function that starts it, because it may be started again."""

    @property
    def joins(self) -> bool:
        """Whether the current call runs inside a handler's transaction."""
        ...

    def once(self, verb: Verb[T]) -> Awaitable[T]:
        """Run a verb that is one writing statement, which commits by itself."""
        ...

    def write(self, verb: Verb[T]) -> Awaitable[T]:
        """Run a verb in one transaction."""
        ...

    def write_briefly(self, verb: Verb[T]) -> Awaitable[T]:
        """Run a verb in one transaction; raise `LockedTooLong` if it would wait for a lock longer than a second."""
        ...

    def look(self, verb: Verb[T]) -> Awaitable[T]:
        """Run a verb that is one reading statement."""
        ...

    def read(self, verb: Verb[T]) -> Awaitable[T]:
        """Run a verb in one snapshot."""
        ...


class PlainRunner(ABC):
    """A `Runner` that runs one statement like a transaction, and a snapshot too unless `read` is overridden."""

    @property
    def joins(self) -> bool:  # noqa: D102 - see `Runner`
        return False

    @abstractmethod
    def write(self, verb: Verb[T]) -> Awaitable[T]: ...  # noqa: D102 - see `Runner`

    def once(self, verb: Verb[T]) -> Awaitable[T]:  # noqa: D102
        return self.write(verb)

    def write_briefly(self, verb: Verb[T]) -> Awaitable[T]:  # noqa: D102
        return self.write(verb)

    def read(self, verb: Verb[T]) -> Awaitable[T]:  # noqa: D102
        return self.write(verb)

    def look(self, verb: Verb[T]) -> Awaitable[T]:  # noqa: D102
        return self.read(verb)


Place = tuple[int, int, int]


class BecameReady(NamedTuple):
    """Jobs became ready: the runner reports it after the commit, so that waiting workers are notified. No answer.

    `places` are (lane_id, turn, seq), for a store that caches where its claims begin; empty if they are not known.
    `parents_changed`: instead of it, or also, children are to be decided (`verbs.children`).
    """

    places: Sequence[Place] = ()
    parents_changed: bool = False


class Ready:
    """Jobs that became ready in a transaction; falsy if there are none."""

    def __init__(self) -> None:
        self._reported: list[BecameReady] = []

    def add(self, reported: BecameReady) -> None:
        """Keep a report until the commit."""
        self._reported.append(reported)

    def add_all(self, other: Ready) -> None:
        """Keep the reports of a verb that has joined the transaction."""
        self._reported += other._reported

    def __bool__(self) -> bool:
        """Whether there is a report."""
        return bool(self._reported)

    @property
    def parents_changed(self) -> bool:
        """Whether children are to be decided."""
        return any(reported.parents_changed for reported in self._reported)

    @property
    def places(self) -> list[Place]:
        """The places of all reports."""
        return [place for reported in self._reported for place in reported.places]


def became_ready(places: Sequence[Place] = (), *, parents_changed: bool = False) -> Steps[None]:
    """Request that waiting workers are notified after the commit."""
    yield BecameReady(places, parents_changed)


def watched(verb: Verb[T], seen: list[BecameReady]) -> Verb[T]:
    """Return the verb that adds to `seen` its requests for decisions on children; empties it when it starts again."""

    def steps() -> Steps[T]:
        seen.clear()
        running = verb()
        try:
            asked = next(running)
            while True:
                if isinstance(asked, BecameReady) and asked.parents_changed:
                    seen.append(asked)
                try:
                    answer = yield asked
                except Exception as error:  # noqa: BLE001 - the verb decides what to do with it
                    asked = running.throw(error)
                else:
                    asked = running.send(answer)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        finally:
            running.close()

    return steps
