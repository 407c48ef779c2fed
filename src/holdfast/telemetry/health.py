"""Whether a process is alive, and whether it does its work: one result per check, as data.

```text
   /livez    restart the process if this fails: it cannot recover by itself. Never because of the store
   /readyz   it works: the store answers, the tables fit, jobs are claimed, and it is not about to stop
```
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

import msgspec

from holdfast.app.app import App
from holdfast.errors import HoldfastError, SchemaMismatch
from holdfast.store.backend import Backend
from holdfast.telemetry.seat_board import SeatReport

STILL: Final = 10.0
"""Seconds without a turn of the worker's loop after which something blocks it."""
_TIMEOUT: Final = 5.0


class CheckResult(msgspec.Struct, frozen=True):
    """One check: whether it passed, and what was found."""

    ok: bool
    detail: str


class Health(msgspec.Struct, frozen=True):
    """The result of all checks."""

    checks: Mapping[str, CheckResult]

    @property
    def ok(self) -> bool:
        """Whether every check has passed."""
        return all(check.ok for check in self.checks.values())

    @property
    def status(self) -> int:
        """The HTTP status: 200 or 503."""
        return 200 if self.ok else 503

    def to_json(self) -> bytes:
        """Return `{"ok": …, "checks": {name: {"ok": …, "detail": …}}}`."""
        return msgspec.json.encode({"ok": self.ok, "checks": self.checks})


# --- a process without a worker ---------------------------------------------------------------------------------------


def live() -> Health:
    """Return that this process answers; nothing else can be wrong with a process that runs no worker."""
    return Health({"process": CheckResult(ok=True, detail="it answers")})


async def ready(app: App, opened: Callable[[], Awaitable[Backend]] | None = None) -> Health:
    """Return whether the store of an app answers, and whether its tables fit; one statement once the store is open.

    `opened` opens the store; without it, no tables are installed.
    """
    try:
        async with asyncio.timeout(_TIMEOUT):
            backend = await (app.opened(install=False) if opened is None else opened())
            version = await backend.schema.check()
    except SchemaMismatch as error:
        reached = CheckResult(ok=True, detail="it answers")
        return Health({"store": reached, "schema": CheckResult(ok=False, detail=str(error))})
    except TimeoutError:
        return Health({"store": CheckResult(ok=False, detail=f"no answer within {_TIMEOUT:g} s")})
    except HoldfastError as error:
        return Health({"store": CheckResult(ok=False, detail=str(error))})
    return Health({
        "store": CheckResult(ok=True, detail="it answers"),
        "schema": CheckResult(ok=True, detail=f"version {version}"),
    })  # fmt: skip


# --- worker processes -------------------------------------------------------------------------------------------------


def workers_live(states: Iterable[SeatReport]) -> Health:
    """Return whether the threads that extend leases are alive; a dead process is handled by its supervisor."""
    dead = [state.seat for state in states if state.is_alive and not state.is_extending]
    detail = f"dead {_in(dead)}: the leases will expire" if dead else "leases are extended"
    return Health({"process": CheckResult(ok=True, detail="it answers"), "leases": CheckResult(not dead, detail)})


def workers_ready(states: Iterable[SeatReport], now: float) -> Health:
    """Return whether every process works; `now` is the monotonic clock, which the processes of a machine share."""
    seats = list(states)
    away = [state.seat for state in seats if not state.is_alive]
    running = [state for state in seats if state.is_alive]
    cut_off = [state.seat for state in running if not state.is_connected]
    still = [state.seat for state in running if now - state.turned_at > STILL]
    draining = [state.seat for state in running if state.is_draining]
    missing = f"not running {_in(away)}: see the log for the reason"
    return Health({
        "processes": _check(away, missing, f"{len(running)} running"),
        "store": _check(cut_off, f"cannot be reached {_in(cut_off)}", "it answers"),
        "schema": _check(away, missing, "fits; checked when each process started"),
        "claims": _check(still, f"no turn for {STILL:g} s {_in(still)}: a handler blocks the event loop", "turning"),
        "stopping": _check(draining, f"draining {_in(draining)}", "no"),
    })  # fmt: skip


def _check(bad: list[int], wrong: str, fine: str) -> CheckResult:
    return CheckResult(ok=not bad, detail=wrong if bad else fine)


def _in(seats: list[int]) -> str:
    return "in " + ", ".join(f"w{seat + 1}" for seat in seats)
