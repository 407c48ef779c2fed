"""The store calls that the machine decides on, as `worker.store_calls.StoreCalls` makes them; one event per reply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from holdfast.model.job import Lease, LeasedJob
from holdfast.runtime.reachability import GAP_PER_LEASE
from holdfast.store.values import Finish, Outstanding
from holdfast.torture.simulation.network import always, never
from holdfast.worker.decision import Decision

if TYPE_CHECKING:
    from holdfast.torture.simulation.shell import Shell

T = TypeVar("T")
_TOO_LATE = 0.75  # of the lease: a claim received later may not be extended in time


class Calls:
    """Carries out decisions over the worker's network."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._store = shell.env.store
        self._settings = shell.seat.settings
        self._late = self._settings.lease * GAP_PER_LEASE
        self._last_fence = 0
        self._has_lost_reply = False

    def carry_out(self, decision: Decision) -> None:
        """Start every call that was decided on."""
        if decision.claim:
            self._claim(decision.claim)
        if decision.flush:
            self._flush(decision.flush)
        if decision.release_unstarted:
            self._release(decision.release_unstarted, started=False)
        if decision.release_started:
            self._release(decision.release_started, started=True)
        if decision.promote:
            self._promote()
        if decision.rescue is not None:
            self._rescue(decision.rescue)
        if decision.prune:
            self._prune()
        if decision.check_empty:
            self._check_empty()

    def _call(
        self,
        act: Callable[[], T],
        done: Callable[[float, T], None],
        failed: Callable[[float], None],
        *,
        writes: Callable[[], bool] = always,
    ) -> None:
        shell = self._shell
        shell.network.call(act, self._timed(done), lambda: shell.post(lambda: failed(shell.clock())), writes=writes)

    def _timed(self, done: Callable[[float, T], None]) -> Callable[[T], None]:
        """Return the callback for the reply to a call sent now; it reports a stall first if the reply is late."""
        shell = self._shell
        clock = shell.clock
        sent_at = clock()

        def answered(answer: T) -> None:
            now = clock()
            if now - sent_at > self._late:
                shell.machine.stalled()
            done(now, answer)

        return lambda answer: shell.post(lambda: answered(answer))

    def _claim(self, limit: int) -> None:
        shell = self._shell
        self.release_unconfirmed(
            lambda: self._send_claim(limit), lambda: shell.machine.claim_failed(shell.clock()), shell.post
        )

    def release_unconfirmed(
        self, then: Callable[[], None], failed: Callable[[], None], post: Callable[[Callable[[], None]], None]
    ) -> None:
        """Release jobs of a claim whose reply was lost, if any, then continue; `post` runs it on the loop."""
        if not self._has_lost_reply:
            then()
            return
        store, network, actor, last_fence = self._store, self._shell.network, self._shell.id, self._last_fence

        def released() -> None:
            self._has_lost_reply = False
            then()

        def listed(leases: list[Lease]) -> None:
            if leases:
                release = partial(store.release, actor, leases, started=False)
                network.call(release, lambda _: post(released), lambda: post(failed))
            else:
                released()

        network.read(
            lambda as_of: store.unacknowledged_leases(actor, last_fence, as_of=as_of),
            lambda leases: post(lambda: listed(leases)),
            lambda: post(failed),
        )

    def _send_claim(self, limit: int) -> None:
        shell = self._shell
        request = msgspec.structs.replace(shell.request, limit=limit)
        sent_at = shell.clock()
        applied_at = 0

        def claim() -> list[LeasedJob]:
            nonlocal applied_at
            applied_at = shell.env.world.now
            return self._store.claim(request)

        def claimed(now: float, jobs: list[LeasedJob]) -> None:
            shell.truth.claimed_at = max(shell.truth.claimed_at, applied_at)
            if jobs:
                self._last_fence = max(self._last_fence, jobs[0].fence)
                shell.truth.taken += len(jobs)
                shell.truth.fences.add(jobs[0].fence)
                if now - sent_at > _TOO_LATE * self._settings.lease:
                    shell.truth.trouble(shell.env.world.now)
            shell.machine.claimed(now, jobs, asked=limit, sent_at=sent_at)

        def failed(now: float) -> None:
            self._has_lost_reply = True
            shell.machine.claim_failed(now)

        self._call(claim, claimed, failed, writes=self._store.has_ready)

    def _flush(self, finishes: list[Finish]) -> None:
        machine, actor = self._shell.machine, self._shell.id
        self._call(
            lambda: self._store.finish(actor, finishes),
            lambda now, verdicts: machine.flushed(now, finishes, verdicts),
            lambda now: machine.flush_failed(now, finishes),
        )

    def _release(self, leases: Sequence[Lease], *, started: bool) -> None:
        machine, actor = self._shell.machine, self._shell.id
        self._call(
            lambda: self._store.release(actor, leases, started=started),
            lambda now, _: machine.released(now, leases),
            lambda now: machine.release_failed(now, leases),
        )

    def _promote(self) -> None:
        machine, actor = self._shell.machine, self._shell.id
        limit = self._settings.promote_limit
        self._call(
            lambda: self._store.promote(actor, limit), machine.promoted, machine.maintenance_failed, writes=never
        )

    def _rescue(self, unbroken: timedelta) -> None:
        shell = self._shell
        limit, sent_at = self._settings.rescue_limit, shell.clock()
        self._call(
            lambda: self._store.rescue(shell.truth, unbroken, limit, waited=shell.clock() - sent_at),
            lambda now, rescued: shell.machine.rescued(now, len(rescued), asked=limit),
            shell.machine.maintenance_failed,
        )

    def _prune(self) -> None:
        machine, limit = self._shell.machine, self._settings.prune_limit
        self._call(lambda: 0, lambda now, count: machine.pruned(now, count, limit), machine.maintenance_failed)

    def _check_empty(self) -> None:
        shell = self._shell
        claimed_at = shell.truth.claimed_at

        def read(as_of: int) -> tuple[int, Outstanding]:
            return as_of, self._store.outstanding(shell.request, as_of=as_of, claimed_at=claimed_at)

        def received(now: float, answer: tuple[int, Outstanding]) -> None:
            as_of, left = answer
            shell.empty_as_of = as_of if left.is_empty else None
            shell.machine.emptiness(now, left.is_empty)

        failed = shell.machine.maintenance_failed
        shell.network.read(read, self._timed(received), lambda: shell.post(lambda: failed(shell.clock())))
