"""Run the steps of a verb on a connection: async or blocking.

The statement that begins a transaction travels with the first request of the verb, and the commit with the request that
the verb declares to be its last one (`Final`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

from holdfast.backends.mysql.driver import BlockingConnection, Result, VerbConnection
from holdfast.backends.mysql.error_map import DriverError, is_duplicate
from holdfast.backends.mysql.statements import MysqlStatements, quoted, trips
from holdfast.backends.sql.steps import Ask, Each, Rows, Script, Together
from holdfast.concurrency.statement_threads import in_own_thread
from holdfast.store.steps import BecameReady, Ready, Steps

T = TypeVar("T")

AskBeside = Callable[[list[str]], list[Result]]


class Beside(NamedTuple):
    """Statements for the session beside the transaction: `ask` runs them, in the calling thread."""

    ask: AskBeside
    texts: list[str]


Messages = Generator["list[str] | Beside", list[Result], T]


class Final(NamedTuple):
    """The last request of a verb: as `Together`, and the transaction of the verb commits in the same trip.

    If it fails, nothing is committed. In a transaction of a handler or of the caller it does not commit.
    """

    asks: tuple[Ask | Each, ...]


class Numbered(NamedTuple):
    """An insert, answered with the first number that it has generated."""

    statement: str
    rows: Sequence[dict[str, object]]


class Committed(NamedTuple):
    """Reads of what is committed now, by a session beside a transaction whose own reads may show an older state.

    Answered with None, without a read, where the transaction's own reads show it.
    """

    asks: tuple[Ask, ...]


def final(*asks: Ask | Each) -> Steps[Rows]:
    """Run the last statements of a verb; return the rows of each."""
    found: Rows = yield Final(asks)
    return found


def numbered(statement: str, rows: Sequence[dict[str, object]]) -> Steps[int]:
    """Insert rows by one statement; return the first number that the server has generated for them."""
    number: int = yield Numbered(statement, rows)
    return number


def views(*asks: Ask) -> Steps[list[list[Rows]]]:
    """Return the answers to reads: as the transaction sees them, with its own writes, and as they are committed now."""
    own: list[Rows] = yield Together(asks)
    committed: list[Rows] | None = yield Committed(asks)
    return [own] if committed is None else [own, committed]


Answer = Callable[[Sequence[Result]], Any]


class _Trip(NamedTuple):
    """Statements, and how to make the answer of a step from their results."""

    texts: list[str]
    answer: Answer
    commits: bool = False


def _nothing(_: Sequence[Result]) -> Rows:
    return []


def _number(found: Sequence[Result]) -> int:
    return found[0].insert_id


def _request(statements: MysqlStatements, asked: Any, *, commits: bool, text: Callable[[str], str]) -> _Trip:
    match asked:
        case Ask():
            texts = statements.filled(asked.statement, asked.parameters, text)
            return _Trip(texts, partial(_rows, asked))
        case Each():
            return _Trip(statements.each(asked, text), _nothing)
        case Together(asks):
            return _together(statements, asks, text)
        case Final(asks):
            request = _together(statements, asks, text)
            return request._replace(texts=[*request.texts, "commit"], commits=True) if commits else request
        case Numbered(statement, rows):
            return _Trip(statements.each(Each(statement, rows), text), _number)
        case Script(script):
            return _Trip(script_parts(script), _nothing)
        case _:
            raise TypeError(asked)


def _together(statements: MysqlStatements, asks: Sequence[Ask | Each], text: Callable[[str], str]) -> _Trip:
    requests = [_request(statements, ask, commits=False, text=text) for ask in asks]

    def answer(found: Sequence[Result]) -> list[Rows]:
        answers: list[Rows] = []
        start = 0
        for request in requests:
            answers.append(request.answer(found[start : start + len(request.texts)]))
            start += len(request.texts)
        return answers

    return _Trip([part for request in requests for part in request.texts], answer)


def _rows(ask: Ask, results: Sequence[Result]) -> Rows:
    found = results[-1]
    if found.rows is None:
        return [()] * found.changed
    return list(found.rows) if ask.record is None else [ask.record(*row) for row in found.rows]


def script_parts(text: str) -> list[str]:
    """Return the statements of a migration; none has a semicolon inside."""
    lines = [line for line in text.splitlines() if not line.startswith("--")]
    return [part.strip() for part in "\n".join(lines).split(";") if part.strip()]


class Session:
    """How a verb runs: `begin` goes before its first statements. `has_committed`: its last request has committed.

    `is_committing`: the next reply may be that of the commit. `is_migrating`: it has the lock of a migration.
    `timeout`: the seconds for the next reply.
    """

    def __init__(
        self,
        statements: MysqlStatements,
        *,
        begin: Sequence[str] = (),
        is_alone: bool = False,
        reply_timeout: float | None = None,
        beside: AskBeside | None = None,
    ) -> None:
        """`beside` is given where reads may show an older state than the committed one."""
        self.statements = statements
        self._beside = beside
        self.begin = list(begin)
        self.has_begun = False
        self.is_alone = is_alone
        self.is_committing = False
        self.is_migrating = False
        self.has_committed = False
        self.timeout = self._reply_timeout = reply_timeout

    def place(self, text: str) -> str:
        """Return the placeholder for a text parameter."""
        return quoted(text)

    def messages(self, steps: Steps[T], ready: Ready) -> Messages[T]:
        """Run a verb: yield the statements of each trip, and take their results, or the error of the driver."""
        try:
            asked = next(steps)
            while True:
                if isinstance(asked, BecameReady):
                    ready.add(asked)
                    asked = steps.send([])
                    continue
                if isinstance(asked, Committed):
                    asked = steps.send((yield from self._committed(asked.asks)))
                    continue
                request = self.request(asked)
                found: list[Result] = []
                try:
                    for texts in self._trips(request):
                        found += yield texts
                except DriverError as error:
                    asked = steps.throw(self._handled(error))
                else:
                    asked = steps.send(request.answer(found))
        except StopIteration as stop:
            return cast("T", stop.value)
        finally:
            steps.close()

    def _committed(self, asks: tuple[Ask, ...]) -> Generator[Beside, list[Result], list[Rows] | None]:
        if self._beside is None:
            return None
        request = _together(self.statements, asks, quoted)
        found = (yield Beside(self._beside, request.texts)) if asks else []
        return cast("list[Rows]", request.answer(found))

    def _trips(self, request: _Trip) -> Iterator[list[str]]:
        first, self.begin = self.begin, []
        groups = trips([*first, *request.texts])
        for number, group in enumerate(groups, 1):
            self.has_begun = True
            if request.commits and number == len(groups):
                self.is_committing = True
            yield group
        if request.commits:
            self.is_committing, self.has_committed = False, True

    def _handled(self, error: Exception) -> Exception:
        """Return an error that the verb may handle: a duplicate undoes its statement alone. Raise any other."""
        if not is_duplicate(error):
            raise error
        self.is_committing = False
        return error

    def request(self, asked: Any) -> _Trip:
        """Return what to send for a step."""
        is_script = isinstance(asked, Script)
        self.is_migrating = self.is_migrating or is_script
        self.timeout = None if is_script else self._reply_timeout
        request = _request(self.statements, asked, commits=self.is_alone, text=self.place)
        if not self.begin:
            return request
        skipped = len(self.begin)

        def answer(found: Sequence[Result]) -> Any:
            return request.answer(found[skipped:])

        return request._replace(answer=answer)


async def drive(connection: VerbConnection, session: Session, steps: Steps[T], ready: Ready) -> T:
    """Run a verb to its end."""

    async def ask(texts: list[str]) -> list[Result]:
        async with asyncio.timeout(session.timeout):
            return await connection.ask(texts)

    return await exchange(session.messages(steps, ready), ask)


def drive_blocking(connection: BlockingConnection, session: Session, steps: Steps[T], ready: Ready) -> T:
    """Run a verb to its end in this thread."""
    return exchange_blocking(session.messages(steps, ready), connection.ask)


async def exchange(messages: Messages[T], ask: Callable[[list[str]], Awaitable[list[Result]]]) -> T:
    """Send the messages of a verb, one after the other; return its result."""
    try:
        texts = next(messages)
        while True:
            try:
                found = await (
                    in_own_thread(partial(texts.ask, texts.texts)) if isinstance(texts, Beside) else ask(texts)
                )
            except DriverError as error:
                texts = messages.throw(error)
            else:
                texts = messages.send(found)
    except StopIteration as stop:
        return cast("T", stop.value)
    finally:
        messages.close()


def exchange_blocking(messages: Messages[T], ask: Callable[[list[str]], list[Result]]) -> T:
    """Do the same in this thread."""
    try:
        texts = next(messages)
        while True:
            try:
                found = texts.ask(texts.texts) if isinstance(texts, Beside) else ask(texts)
            except DriverError as error:
                texts = messages.throw(error)
            else:
                texts = messages.send(found)
    except StopIteration as stop:
        return cast("T", stop.value)
    finally:
        messages.close()
