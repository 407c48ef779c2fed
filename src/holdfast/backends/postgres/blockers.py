"""End the sessions that block recovery: the server side of frozen clients.

A live client rolls a transaction back when its limit has passed. A frozen one cannot. While its session is idle in the
transaction, a server timeout ends it. Inside a pipeline, a COPY or a half-sent statement, however, the session is
active and waits for its client, and no timeout before PostgreSQL 17 applies. So the recovering process ends the session
with `pg_terminate_backend`:

```text
   lease expired ─▶ row locked? ─▶ by which transaction? ─▶ past a handler's limit? ─▶ end its session
                        no │               (xmax)                  no │
                           ▼                                          ▼
                     take the lease                        left until the next pass
```

The lock of a released savepoint cannot be mapped to a session by its `xmax`. Such a session is found by waiting for the
row. A rescue that takes long takes no short lease, so the wait follows the rescue, and is short.

Other waits for our rows, for instance an append that waits for the head of a partition, are not recovery: a stuck
session that causes one is ended once its transaction is older than the limit of any handler's transaction.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple

from holdfast.backends.postgres.runners import PoolRunner
from holdfast.backends.sql.steps import rows, value
from holdfast.backends.sql.streams.shares import share_lists
from holdfast.model.allocation import Share
from holdfast.model.instants import span_micros
from holdfast.model.lease_rules import LOCKED_PARTS, longest_covered
from holdfast.store.steps import LockedTooLong, Steps

_logger = logging.getLogger("holdfast.postgres")
_PAUSE = timedelta(seconds=5)
_LEAST = timedelta(seconds=30)
_WAIT = 200  # milliseconds that our own session waits for a row, so that the server reports which session blocks it
_LOOK_AGAIN = 0.05
_ASK_AGAIN = 30.0  # seconds until a session that this role may not end is waited for again
_ENDED = (
    "ended session %d of role %s: its transaction was open for %.1f s, past its limit, and held rows that others wait "
    "for. Its client was frozen, or too slow"
)
_REFUSED = (
    "session %d of role %s holds rows that recovery waits for, and this role may not end it: jobs or shares stay with "
    "their frozen client until it resumes. Connect as the same role, or grant the role of the workers %s or "
    "pg_signal_backend. This is logged once for each role"
)


class _Held(NamedTuple):
    """A row that recovery needs: the transaction that holds it, for how long it may, how long ago its lease expired."""

    holder: str
    allowed: int
    overdue: int
    seq: int | None


class Blockers:
    """Ends sessions that hold locks past their limit; logs each one, and each role whose sessions it may not end."""

    def __init__(self, runner: PoolRunner, *, pause: timedelta = _PAUSE, least: timedelta = _LEAST) -> None:
        """`pause`: a session without progress for this long inside a verb is stuck; also the interval of the search.

        `least`: the minimum time that other sessions wait for a stuck transaction of a handler or a caller.
        """
        self._runner = runner
        self._pause = pause
        self._least = least
        self._looked = float("-inf")
        self._refused: set[str] = set()
        self._waited: dict[str, float] = {}
        """When each hidden holder was last waited for; later than now for one whose session may not be ended."""

    async def end_for_leases(self, unbroken: timedelta | None) -> None:
        """End the sessions that lock expired leases: rows of running jobs, or the keys that their ends lock."""
        if held := await self._holders_of_leases(unbroken):
            await self._end(held)

    async def end_hidden(self, unbroken: timedelta | None) -> None:
        """End sessions that lock expired leases and are not found by their transactions; each pass waits for others.

        A session that may not be ended, or is within its limit, therefore does not keep others from being ended.
        """
        if self._runner.joins:
            return
        late = {each.holder: each for each in await self._holders_of_leases(unbroken) if each.overdue > each.allowed}
        now = time.monotonic()
        self._waited = {holder: self._waited.get(holder, 0.0) for holder in late}
        for holder in sorted(late, key=lambda each: self._waited[each]):
            if self._waited[holder] > now or time.monotonic() - now > _WAIT / 1_000:
                break
            self._waited[holder] = now
            if await self._end_while_waiting(late[holder]):
                self._waited[holder] = now + _ASK_AGAIN

    async def end_for_shares(self, shares: Iterable[Share]) -> None:
        """End the sessions that lock shares which are to be seized."""
        if held := await self._holders("holders_of_shares", **share_lists(shares)):
            await self._end(held)

    async def end_stuck(self) -> None:
        """End the sessions whose client stopped in the middle of sending; searches every few seconds at most."""
        now = time.monotonic()
        if now - self._looked >= self._pause.total_seconds():
            self._looked = now
            spans = {"pause": span_micros(self._pause), "least": span_micros(self._least), "parts": LOCKED_PARTS}
            self._note(await self._runner.apart(lambda: rows("end_stuck_sessions", **spans)))

    async def _holders_of_leases(self, unbroken: timedelta | None) -> list[_Held]:
        return await self._holders("holders_of_leases", longest=longest_covered(unbroken), parts=LOCKED_PARTS)

    async def _holders(self, look: str, **parameters: object) -> list[_Held]:
        return [_Held(*row) for row in await self._runner.apart(lambda: rows(look, **parameters))]

    async def _end(self, held: Sequence[_Held], *, waiting: int | None = None) -> bool:
        """Return whether there is a session that this role may not end."""
        holders, allowed, overdue, _ = map(list, zip(*held, strict=True))
        columns = {"holders": holders, "allowed": allowed, "overdue": overdue}
        return self._note(await self._runner.apart(lambda: rows("end_holders", **columns, waiting=waiting)))

    async def _end_while_waiting(self, held: _Held) -> bool:
        """Lock the row of a lease in our own session, with a short timeout, and end the sessions that block it."""
        refused = False
        number: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        waiter = asyncio.ensure_future(self._runner.write(lambda: _wait(held.seq, number)))
        try:
            either: set[asyncio.Future[Any]] = {waiter, number}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            while not waiter.done():
                refused = await self._end([held], waiting=number.result()) or refused
                await asyncio.wait({waiter}, timeout=_LOOK_AGAIN)
            with suppress(LockedTooLong):
                await waiter
        finally:
            waiter.cancel()
        return refused

    def _note(self, found: Sequence[tuple[int, str, int, bool | None]]) -> bool:
        for pid, role, age, ended in found:
            if ended is not None:
                _logger.warning(_ENDED, pid, role, age / 1_000_000)
            elif role not in self._refused:
                self._refused.add(role)
                _logger.warning(_REFUSED, pid, role, role)
        return any(ended is None for *_, ended in found)


def _wait(seq: int | None, number: asyncio.Future[int]) -> Steps[None]:
    found = yield from value("session_number")
    if not number.done():  # the verb may be repeated
        number.set_result(found)
    yield from rows("wait_at_most", milliseconds=_WAIT)
    yield from rows("wait_for_running", seq=seq)
    yield from rows("wait_for_order_key", seq=seq)
    yield from rows("wait_for_limit_key", seq=seq)
