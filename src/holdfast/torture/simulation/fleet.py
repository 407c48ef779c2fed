"""Everything that is not a worker: producers, restarts, the operator, and the faults."""

from __future__ import annotations

from functools import partial

from holdfast.torture.simulation.environment import Environment
from holdfast.torture.simulation.scenario import QUEUES, ScheduledFault, SimulatedFault, SimulatedSeat, SimulatedWork
from holdfast.torture.simulation.shell import Shell
from holdfast.torture.simulation.world import SECOND
from holdfast.worker.decision import Exit

_AGAIN = SECOND // 10
_RESCUE_LIMIT = 1000


class SimulatedFleet:
    """All workers, by seat, and the faults that affect them."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._world = env.world
        self._store = env.store
        self._dice = env.work
        self._count = 0
        self.shells: list[Shell] = [self._fill(index, seat) for index, seat in enumerate(env.scenario.seats)]
        self.refills = True
        self._network = env.network()
        self.waiting = len(env.scenario.works)

    def start(self) -> None:
        """Start everything."""
        for shell in self.shells:
            shell.start()
        for work in self._env.scenario.works:
            self._world.at(work.at, partial(self._enqueue, work))
        for event in self._env.scenario.events:
            self._world.at(event.at, partial(self._apply, event))

    # --- producers --------------------------------------------------------------------------------------------------

    def _enqueue(self, work: SimulatedWork) -> None:
        """Enqueue under the same id until it is known to have succeeded."""

        def accepted(_: object) -> None:
            self.waiting -= 1
            self._notify()

        self._network.call(
            lambda: self._store.enqueue("producer", [work.new]),
            accepted,
            lambda: self._world.after(_AGAIN, lambda: self._enqueue(work)),
        )

    def _notify(self) -> None:
        for shell in self.shells:
            if self._dice.random() >= self._env.rates.lost_notifications:
                self._world.after(int(self._dice.random() * _AGAIN), shell.wake)

    # --- seats ------------------------------------------------------------------------------------------------------

    def _fill(self, index: int, seat: SimulatedSeat) -> Shell:
        self._count += 1
        name = f"w{index}.{self._count}"
        return Shell(self._env, seat, name, over=lambda how: self._emptied(index, seat, name, how))

    def _emptied(self, index: int, seat: SimulatedSeat, name: str, how: Exit | None) -> None:
        """Fill a seat again, after a while; a supervisor first releases what a dead worker held."""
        if how is None and seat.supervised:
            self._world.after(int(self._dice.random() * SECOND), lambda: self._rescue_dead_worker(name))

        def fill() -> None:
            if self.refills:
                self.shells[index] = self._fill(index, seat)
                self.shells[index].start()

        self._world.after(int(self._dice.random() * 2 * SECOND), fill)

    def _rescue_dead_worker(self, name: str) -> None:
        self._network.call(
            lambda: self._store.rescue_worker("supervisor", name, _RESCUE_LIMIT),
            lambda _: None,
            lambda: self._world.after(_AGAIN, lambda: self._rescue_dead_worker(name)),
        )

    # --- faults ----------------------------------------------------------------------------------------------------

    def _apply(self, event: ScheduledFault) -> None:
        shell = self.shells[event.target % len(self.shells)]
        cases = sorted(self._store.judge.cases)
        job_id = cases[event.target % len(cases)] if cases else None
        match event.fault:
            case SimulatedFault.OUTAGE | SimulatedFault.HELD | SimulatedFault.STORE_CLOCK:
                self._affect_store(event)
            case SimulatedFault.PAUSE | SimulatedFault.RESCUE:
                self._operate_on_queue(event)
            case SimulatedFault.CANCEL | SimulatedFault.RETRY | SimulatedFault.RESET:
                if job_id is not None and not self._store.status.down:
                    self._operate_on_job(event.fault, job_id)
            case _:
                if not shell.is_over:
                    self._world.note(shell.id, f"fault: {event.fault}", (), f"{event.lasts / SECOND:.3f} s")
                    self._affect_worker(event, shell)

    def _affect_worker(self, event: ScheduledFault, shell: Shell) -> None:
        """Inject a fault into one worker."""
        match event.fault:
            case SimulatedFault.CRASH:
                shell.die("kill")
            case SimulatedFault.FREEZE:
                shell.freeze(event.lasts)
            case SimulatedFault.BLOCK:
                shell.block(event.lasts)
            case SimulatedFault.CUT:
                shell.cut(is_cut=True)
                shell.truth.trouble(self._world.now + event.lasts + _AGAIN)
                self._world.after(event.lasts, lambda: shell.cut(is_cut=False))
            case SimulatedFault.STOP:
                shell.stop()
            case SimulatedFault.STOP_TWICE:
                shell.stop()
                self._world.after(event.lasts // 4, shell.stop)
            case SimulatedFault.WAKE_TO_STOP:
                shell.freeze(event.lasts)
                shell.stop()
            case SimulatedFault.STANDSTILL:
                shell.clock.offset -= event.lasts / SECOND * shell.clock.rate
                shell.truth.misled_at = self._world.now + event.lasts
                shell.freeze(event.lasts)
            case _:
                shell.clock.offset += event.lasts / SECOND
                shell.truth.misled_at = self._world.now
                shell.truth.trouble(self._world.now)

    def _affect_store(self, event: ScheduledFault) -> None:
        """Inject a fault into the store."""
        status = self._store.status
        if event.fault is SimulatedFault.STORE_CLOCK:
            step = event.lasts if event.target % 2 else -event.lasts
            self._world.note("store", "fault: clock", (), f"set by {step / SECOND:.3f} s")
            self._store.set_clock(step)
            for shell in self.shells:
                shell.truth.trouble(self._world.now)
        elif event.fault is SimulatedFault.HELD:
            self._world.note("store", "fault: held", (), f"{event.lasts / SECOND:.3f} s")
            status.held_until = max(status.held_until, self._world.now + event.lasts)
        elif not status.down:
            self._world.note("store", "fault: down", (), f"{event.lasts / SECOND:.3f} s")
            status.down = True
            status.outages += 1
            status.lasted = event.lasts
            status.back_at = self._world.now + event.lasts
            self._world.after(event.lasts, self._back)

    def _back(self) -> None:
        self._world.note("store", "fault: up again")
        self._store.status.down = False

    def _operate_on_queue(self, event: ScheduledFault) -> None:
        if event.fault is SimulatedFault.RESCUE:
            self._store.rescue_now("operator")
            return
        queue = QUEUES[event.target % len(QUEUES)]
        self._store.pause(queue)
        self._world.after(event.lasts, lambda: self._store.resume(queue))

    def _operate_on_job(self, fault: SimulatedFault, job_id: str) -> None:
        match fault:
            case SimulatedFault.CANCEL:
                self._store.cancel(job_id)
            case SimulatedFault.RETRY:
                self._store.retry(job_id)
                self._notify()
            case _:
                self._store.reset(job_id)
