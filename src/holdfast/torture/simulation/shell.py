"""A simulated worker: the real machine, with simulated hands.

What `worker.worker.Worker` does on its event loop is done here at once, at one instant: events are taken in, the
machine decides, calls go out, handlers begin. While the loop is blocked or the process frozen, what arrives waits, in
order, and is handled when it goes on: so an answer may be old when the machine hears of it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from holdfast.model.job import LeasedJob
from holdfast.model.outcome import Outcome
from holdfast.store.values import ClaimRequest, WorkerHeartbeat
from holdfast.torture.simulation.attempts import RUNNING, SimulatedAttempts
from holdfast.torture.simulation.calls import Calls
from holdfast.torture.simulation.clock import WorkerClock
from holdfast.torture.simulation.environment import Environment
from holdfast.torture.simulation.keeper import SimulatedLeaseKeeper
from holdfast.torture.simulation.observer import WorkerTruth
from holdfast.torture.simulation.scenario import TASK, SimulatedSeat
from holdfast.torture.simulation.world import SECOND
from holdfast.worker.decision import Exit, WorkerPhase
from holdfast.worker.machine import Machine

_JITTERED = 0.1
_JITTER = 0.2


class Shell:
    """One incarnation of a worker, from its start to its end or death."""

    def __init__(
        self, place: Environment, seat: SimulatedSeat, worker_id: str, *, over: Callable[[Exit | None], None]
    ) -> None:
        self._place = place
        self._world = place.world
        self._over = over
        self._seat = seat
        self.id = worker_id
        lease = int(seat.settings.lease * SECOND)
        self.witness = WorkerTruth(worker_id, seat.settings.concurrency, lease)
        place.store.judge.workers[worker_id] = self.witness
        self.clock = WorkerClock(place.world, rate=seat.rate, offset=seat.offset)
        self.wire = place.wire()
        self.keeper_wire = place.keeper_wire()
        self.keeper_wire.troubled = self.witness.trouble
        self.machine = Machine(seat.settings)
        self._calls = Calls(self)
        self._attempts = SimulatedAttempts(self)
        self.keeper = SimulatedLeaseKeeper(self)
        self._inbox: list[Callable[[], None]] = []
        self._is_passing = False
        self._pass_at = -1
        self._timer = 0
        self._hint = False
        self.is_over = False
        self.was_stopped = False
        self.told_empty: int | None = None
        """As of when the last look said that nothing is left, if it did."""
        self.frozen_until = 0
        self._blocked_until = 0
        self.request = ClaimRequest(
            worker_id=worker_id,
            tasks=(TASK,),
            limit=0,
            lease=timedelta(seconds=seat.settings.lease),
            queues=seat.queues,
        )

    @property
    def place(self) -> Environment:
        """What the worker shares with all others."""
        return self._place

    @property
    def seat(self) -> SimulatedSeat:
        """The worker's settings and clock."""
        return self._seat

    def start(self) -> None:
        """Begin: the store first hears of this worker, then the loop turns."""
        self._world.note(self.id, "starts")
        self.keeper.turn()

    # --- the loop ---------------------------------------------------------------------------------------------------

    def post(self, event: Callable[[], None]) -> None:
        """Have something handled on the loop, as soon as it is free."""
        if self.is_over:
            return
        self._inbox.append(event)
        if not self._is_passing:
            self._pass()

    def _pass(self) -> None:
        """Handle what has arrived, then turn, unless the loop stands still."""
        if self.is_over:
            return
        ready_at = max(self.frozen_until, self._blocked_until)
        if self._world.now < ready_at:
            if self._pass_at != ready_at:
                self._pass_at = ready_at
                self._world.at(ready_at, self._pass)
            return
        self._is_passing = True
        try:
            self._handle()
        finally:
            self._is_passing = False
        if self._blocked_until > self._world.now:
            self._pass()

    def _handle(self) -> None:
        while True:
            while self._inbox:
                events, self._inbox = self._inbox, []
                for event in events:
                    event()
            wait = self._turn()
            if self.is_over:
                return
            if not self._inbox or self._blocked_until > self._world.now:
                break
        self._timer += 1
        if wait is not None:
            timer = self._timer
            if wait > _JITTERED:
                wait *= 1 - _JITTER * self._place.work.random()
            self._world.after(self.clock.span(wait), lambda: self._ring(timer))

    def _ring(self, timer: int) -> None:
        if timer == self._timer:
            self.post(_nothing)

    def _turn(self) -> float | None:
        machine = self.machine
        while True:
            now = self.clock()
            if self._hint:
                self._hint = False
                machine.woken(now)
            decision = machine.decide(now)
            self._calls.carry_out(decision)
            for job, why in decision.abort:
                self._attempts.abort(job, why)
            if decision.exit is not None:
                self._wind_up(decision.exit)
                return None
            if not self._begin_jobs(now) or self._blocked_until > self._world.now:
                return decision.wait

    def _begin_jobs(self, now: float) -> bool:
        any_ended = False
        while (job := self.machine.take()) is not None:
            outcome = self._attempts.begin(job)
            if self._blocked_until > self._world.now:
                return False
            if outcome is RUNNING:
                continue
            any_ended = True
            if self.machine.ended(now, job, outcome):
                return True
        return any_ended

    def ended(self, job: LeasedJob, outcome: Outcome | None) -> None:
        """Take in the end of a handler; called on the loop."""
        self.machine.ended(self.clock(), job, outcome)

    def block(self, span: int) -> None:
        """Let the loop stand still for so long; the keeper goes on."""
        self._blocked_until = max(self._blocked_until, self._world.now + span)

    def freeze(self, span: int) -> None:
        """Let the whole process stand still."""
        self.frozen_until = max(self.frozen_until, self._world.now + span)
        self.witness.trouble(self.frozen_until)

    def cut(self, *, is_cut: bool) -> None:
        """Cut the process off from the store, or no more."""
        self.wire.is_cut = self.keeper_wire.is_cut = is_cut

    def wake(self) -> None:
        """Hint that there may be work."""
        if not self._hint:
            self._hint = True
            self.post(_nothing)

    # --- the end ----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Ask the worker to drain; a second time: to give everything back."""

        def stop() -> None:
            self.was_stopped = True
            self.witness.is_healthy = False
            self.machine.stop(self.clock())

        self.post(stop)

    def die(self, why: str) -> None:
        """End at once, with the loss of all memory; what was sent is on its way."""
        if not self.is_over:
            self._world.note(self.id, f"fault: dies ({why})")
            self._end(None)

    def _wind_up(self, how: Exit) -> None:
        self._world.note(self.id, "ends", (), how.name)
        totals = self.machine.status().totals
        was_told = self.was_stopped or self.told_empty is not None
        if self.machine.status().phase is not WorkerPhase.ENDED or not was_told:
            self._place.accuse("until empty", f"{self.id} has ended though nobody asked it to and work is left")
        if self.told_empty is not None and not self.was_stopped:
            self._place.store.judge.emptied(self.witness, self.told_empty)
        self._place.store.judge.left(self.witness, totals)
        self._calls.give_back_unheard(self._forget, _nothing, lambda act: act())  # the loop has ended
        self._end(how)

    def _forget(self) -> None:
        if not len(self.machine.holdings):
            place, worker_id = self._place, self.id
            self.wire.call(lambda: place.store.rescue_worker(worker_id, worker_id, 1), lambda _: None, _nothing)

    def _end(self, how: Exit | None) -> None:
        self.is_over = True
        self.witness.is_healthy = False
        self.witness.ended_at = self._world.now
        self._inbox.clear()
        self._over(how)

    def beat(self) -> WorkerHeartbeat:
        """Return what the worker tells of itself."""
        return WorkerHeartbeat(
            worker_id=self.id,
            host="simulated",
            pid=1,
            queues=self._seat.queues,
            concurrency=self._seat.settings.concurrency,
            lease=self.request.lease,
            running=len(self.machine.holdings),
        )


def _nothing() -> None:
    """Only turn the loop."""
