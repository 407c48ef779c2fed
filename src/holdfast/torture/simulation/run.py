"""Run a scenario and return the verdict.

Two modes, one simulator. *Safety*: faults occur all the time, and every reply is checked. *Liveness*: the same, then
the faults stop, and every job must end within a bound, and every worker must exit when it is asked to.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.torture.simulation.environment import Environment
from holdfast.torture.simulation.fleet import SimulatedFleet
from holdfast.torture.simulation.scenario import Scenario, draw
from holdfast.torture.simulation.world import SECOND, Entry, Violated
from holdfast.worker.settings import WorkerConfig

_BOUND = 20  # leases; the slowest of some thousand seeds took 8


@dataclass(frozen=True, slots=True)
class SimulationVerdict:
    """The result of a run: the broken rule and how (None if none), and the trace."""

    scenario: Scenario
    steps: int
    seconds: float
    rule: str | None
    message: str
    job_id: str | None
    trace: list[Entry]
    digest: str


def run_seed(seed: int, *, liveness: bool = False, hashed: bool = False) -> SimulationVerdict:
    """Run the scenario of a seed."""
    return run(draw(seed), liveness=liveness, hashed=hashed)


def run(scenario: Scenario, *, liveness: bool = False, hashed: bool = False) -> SimulationVerdict:
    """Run a scenario to its end or to the first broken rule."""
    env = Environment(scenario)
    world = env.world
    rule, message, job_id = None, "", None
    try:
        fleet = SimulatedFleet(env)
        fleet.start()
        world.run(scenario.span)
        if liveness:
            _drain(env, fleet)
        env.store.judge.conclude()
    except Violated as violated:
        rule, message, job_id = violated.rule, violated.message, violated.job_id
    except Exception as error:  # noqa: BLE001 - any error of the machine or the model is a finding
        rule, message = "no error", f"{type(error).__name__}: {error}"
    return SimulationVerdict(
        scenario=scenario,
        steps=world.steps,
        seconds=world.now / SECOND,
        rule=rule,
        message=message,
        job_id=job_id,
        trace=world.trace,
        digest=world.digest() if hashed else "",
    )


def _drain(env: Environment, fleet: SimulatedFleet) -> None:
    """Stop all faults; then every job must end, and every worker that is asked to must exit."""
    world, cases = env.world, env.store.judge.cases
    env.stop_faults()
    world.note("all", "faults end")
    longest = max(seat.settings.lease for seat in env.scenario.seats)
    lease = int(longest * SECOND)
    began, bound = world.now, world.now + _BOUND * lease
    while fleet.waiting or any(case.state is None for case in cases.values()):
        if world.now >= bound:
            open_ = [case for case in cases.values() if case.state is None]
            message = f"not done {_BOUND * longest:g} s after the last fault"
            env.report("drain", message, open_[0].id if open_ else None)
        world.run(world.now + lease // 4)
        env.store.judge.recovered(began)
    fleet.refills = False
    for shell in fleet.shells:
        if not shell.is_over:
            shell.stop()
    bound = world.now + lease + int(3 * SECOND) + max(_leave(shell.seat.settings) for shell in fleet.shells)
    world.run(bound)
    for shell in fleet.shells:
        if not shell.is_over:
            env.report("stop", f"{shell.id} still runs, long after it was asked to stop")


def _leave(settings: WorkerConfig) -> int:
    """Return the microseconds within which a stopping worker has exited."""
    return int((settings.drain_timeout + 2 * settings.abort_grace) / 0.9 * SECOND)
