"""A simulated worker: the real machine with simulated I/O.

What `worker.worker.Worker` does on its event loop happens here at one instant: events are processed, the machine
decides, calls are sent, handlers start. While the loop is blocked or the process frozen, arrivals wait, in order, and
are handled when it resumes: so a reply may be old when the machine receives it.
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
    """One incarnation of a worker, from its start to its exit or death."""

    def __init__(
        self, env: Environment, seat: SimulatedSeat, worker_id: str, *, over: Callable[[Exit | None], None]
    ) -> None:
        self._env = env
        self._world = env.world
        self._over = over
        self._seat = seat
        self.id = worker_id
        lease = int(seat.settings.lease * SECOND)
        self.truth = WorkerTruth(worker_id, seat.settings.concurrency, lease)
        env.store.judge.workers[worker_id] = self.truth
        self.clock = WorkerClock(env.world, rate=seat.rate, offset=seat.offset)
        self.network = env.network()
        self.keeper_network = env.keeper_network()
        self.keeper_network.troubled = self.truth.trouble
        self.machine = Machine(seat.settings)
        self._calls = Calls(self)
        self._attempts = SimulatedAttempts(self)
        self.keeper = SimulatedLeaseKeeper(self)
        self._inbox: list[Callable[[], object]] = []
        self._is_passing = False
        self._pass_at = -1
        self._timer = 0
        self._notify = False
        self.is_over = False
        self.was_stopped = False
        self.empty_as_of: int | None = None
        """The state as of which the last read showed that nothing is left, if it did."""
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
    def env(self) -> Environment:
        """The environment that the worker shares with all others."""
        return self._env

    @property
    def seat(self) -> SimulatedSeat:
        """The worker's settings and clock."""
        return self._seat

    def start(self) -> None:
        """Start: register with the store, then run the loop."""
        self._world.note(self.id, "starts")
        self.keeper.turn()

    # --- the loop ---------------------------------------------------------------------------------------------------

    def post(self, event: Callable[[], object]) -> None:
        """Handle something on the loop, as soon as it is free."""
        if self.is_over:
            return
        self._inbox.append(event)
        if not self._is_passing:
            self._pass()

    def _pass(self) -> None:
        """Handle what has arrived, then run a turn, unless the loop is blocked."""
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
                wait *= 1 - _JITTER * self._env.work.random()
            self._world.after(self.clock.span(wait), lambda: self._ring(timer))

    def _ring(self, timer: int) -> None:
        if timer == self._timer:
            self.post(_nothing)

    def _turn(self) -> float | None:
        machine = self.machine
        while True:
            now = self.clock()
            if self._notify:
                self._notify = False
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
        """Process the end of a handler; called on the loop."""
        self.machine.ended(self.clock(), job, outcome)

    def block(self, span: int) -> None:
        """Block the loop for some time; the keeper continues."""
        self._blocked_until = max(self._blocked_until, self._world.now + span)

    def freeze(self, span: int) -> None:
        """Suspend the whole process."""
        self.frozen_until = max(self.frozen_until, self._world.now + span)
        self.truth.trouble(self.frozen_until)

    def cut(self, *, is_cut: bool) -> None:
        """Cut the process off from the store, or reconnect it."""
        self.network.is_cut = self.keeper_network.is_cut = is_cut

    def wake(self) -> None:
        """Notify the worker that there may be work."""
        if not self._notify:
            self._notify = True
            self.post(_nothing)

    # --- the end ----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Ask the worker to drain; a second time: to release everything."""

        def stop() -> None:
            self.was_stopped = True
            self.truth.is_healthy = False
            self.machine.stop(self.clock())

        self.post(stop)

    def die(self, why: str) -> None:
        """Die at once, losing all memory; requests in flight still arrive."""
        if not self.is_over:
            self._world.note(self.id, f"fault: dies ({why})")
            self._end(None)

    def _wind_up(self, how: Exit) -> None:
        self._world.note(self.id, "ends", (), how.name)
        totals = self.machine.status().totals
        may_exit = self.was_stopped or self.empty_as_of is not None
        if self.machine.status().phase is not WorkerPhase.ENDED or not may_exit:
            self._env.report("until empty", f"{self.id} exited without a request although work is left")
        if self.empty_as_of is not None and not self.was_stopped:
            self._env.store.judge.emptied(self.truth, self.empty_as_of)
        self._env.store.judge.left(self.truth, totals)
        self._calls.release_unconfirmed(self._forget, _nothing, lambda act: act())  # the loop has ended
        self._end(how)

    def _forget(self) -> None:
        if not len(self.machine.holdings):
            env, worker_id = self._env, self.id
            self.network.call(lambda: env.store.rescue_worker(worker_id, worker_id, 1), lambda _: None, _nothing)

    def _end(self, how: Exit | None) -> None:
        self.is_over = True
        self.truth.is_healthy = False
        self.truth.ended_at = self._world.now
        self._inbox.clear()
        self._over(how)

    def heartbeat(self) -> WorkerHeartbeat:
        """Return the heartbeat of the worker."""
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
    """Only run a turn of the loop."""
