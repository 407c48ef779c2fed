"""The lease keeper's thread, as in `worker.lease_keeper.LeaseKeeper`: it stops only with its whole process.

One turn: end the process if a handler is stuck; extend what is due; read cancel requests; send a heartbeat; wait. Each
call waits for its reply, and an error ends the turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.model.job import Lease
from holdfast.store.values import Extension
from holdfast.torture.simulation.world import SECOND

if TYPE_CHECKING:
    from holdfast.torture.simulation.shell import Shell

_CANCEL_POLL = 0.5
_TICKS = 20
_SWITCH = 5000


class SimulatedLeaseKeeper:
    """Extends the worker's leases."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._world = shell.env.world
        self._store = shell.env.store
        self._holdings = shell.machine.holdings
        lease = shell.seat.settings.lease
        self._tick = int(min(lease / _TICKS, _CANCEL_POLL) * SECOND)
        self._heartbeat_every = min(lease / 2, 10.0)
        self._heartbeat_at = 0.0
        self._stuck_grace = lease
        self._has_turned = False
        self.limits: dict[tuple[int, int], float] = {}
        """The deadline of each attempt in a thread or on the loop, by the worker's clock."""

    def turn(self) -> None:
        """Do one turn and schedule the next."""
        shell = self._shell
        if self._waits(self.turn):
            return
        now = shell.clock()
        for limit in self.limits.values():
            if now > limit + self._stuck_grace:
                shell.die("stuck")
                return
        due = self._holdings.due(now)
        if not due:
            self._read_cancel_requests()
            return
        lease = shell.request.lease
        shell.keeper_network.call(
            lambda: self._store.extend(shell.id, due, lease),
            lambda extension: self._extended(due, extension, now),
            self._rest,
        )

    def _waits(self, action: Callable[[], None]) -> bool:
        """Return whether the process has exited or is frozen; if frozen, `action` runs when it resumes."""
        shell = self._shell
        if shell.is_over:
            return True
        if self._world.now < shell.frozen_until:
            self._world.at(shell.frozen_until, action)
            return True
        return False

    def _extended(self, due: list[Lease], extension: Extension, sent_at: float) -> None:
        if self._waits(lambda: self._extended(due, extension, sent_at)):
            return
        shell = self._shell
        not_extended = {(lease.seq, lease.fence) for lease in (*extension.lost, *extension.skipped)}
        self._holdings.extended((lease for lease in due if (lease.seq, lease.fence) not in not_extended), sent_at)
        if extension.lost:
            self._holdings.lost(extension.lost)
            self._post_to_loop(lambda: shell.machine.lost(shell.clock(), extension.lost))
        self._read_cancel_requests()

    def _post_to_loop(self, event: Callable[[], object]) -> None:
        """Run something on the loop, a moment later: threads take turns."""
        shell = self._shell
        self._world.after(int(shell.env.work.random() * _SWITCH), lambda: shell.post(event))

    def _read_cancel_requests(self) -> None:
        shell = self._shell
        if not len(self._holdings) or not self._store.has_cancel_requests(shell.id):
            self._heartbeat()
            return
        shell.keeper_network.read(
            lambda as_of: self._store.cancel_asked(shell.id, as_of=as_of), self._cancel_requested, self._rest
        )

    def _cancel_requested(self, leases: list[Lease]) -> None:
        if self._waits(lambda: self._cancel_requested(leases)):
            return
        shell = self._shell
        if leases:
            self._post_to_loop(lambda: shell.machine.cancel_asked(shell.clock(), leases))
        self._heartbeat()

    def _heartbeat(self) -> None:
        shell = self._shell
        now = shell.clock()
        if now >= self._heartbeat_at:
            self._heartbeat_at = now + self._heartbeat_every
            if not self._store.status.down:
                self._store.heartbeat(shell.heartbeat())
        self._rest()

    def _rest(self) -> None:
        """Wait for the next turn."""
        shell = self._shell
        if not self._has_turned:
            self._has_turned = True
            shell.post(lambda: None)
        self._world.after(shell.clock.span(self._tick / SECOND), self.turn)
