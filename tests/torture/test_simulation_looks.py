"""Old looks: what they may show, and how old they may be."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

import msgspec
from tests.torture.simulation_mutants import LOOK_MUTANTS

from holdfast.model.job import Lease, NewJob
from holdfast.model.outcome import Failure, Retried
from holdfast.store.values import ClaimRequest, Finish, Outstanding, Standing, Verdict
from holdfast.torture.simulation import draw, run, run_seed
from holdfast.torture.simulation.environment import Environment
from holdfast.torture.simulation.network import SimulatedNetwork, StoreStatus
from holdfast.torture.simulation.scenario import QUEUES, TASK, Scenario
from holdfast.torture.simulation.shrink import shrink
from holdfast.torture.simulation.store import Store
from holdfast.torture.simulation.world import SECOND, SimulatedWorld
from holdfast.worker.machine import Machine

REQUEST = ClaimRequest(worker_id="w", tasks=(TASK,), limit=1, lease=timedelta(seconds=2), queues=None)


def job(number: int) -> NewJob:
    return NewJob(id=f"job-{number}", queue=QUEUES[0], task=TASK, payload="{}", order_key="east")


class Seen:
    """All that looks can show of a store, as of an instant."""

    def __init__(self, store: Store, lease: Lease, as_of: int) -> None:
        self.left: Outstanding = store.outstanding(REQUEST, as_of=as_of, claimed_at=0)
        self.asked: list[Lease] = store.cancel_asked("w", as_of=as_of)
        self.standing: Standing = store.verify("w", lease, as_of=as_of)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Seen) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


def test_an_old_look_shows_what_a_look_showed_then():
    world = SimulatedWorld()
    store = Store(world, oldest=100 * SECOND)
    lease = Lease("job-0", 1, 1)
    steps = [
        lambda: None,
        lambda: store.enqueue("producer", [job(0), job(1)]),
        lambda: store.claim(REQUEST),
        lambda: store.cancel("job-0"),
        lambda: store.pause(QUEUES[0]),
        lambda: store.finish("w", [Finish(lease, Retried(timedelta(seconds=1), Failure("E", "m")))]),
        lambda: store.resume(QUEUES[0]),
        lambda: store.retry("job-0"),
        lambda: store.claim(REQUEST),
        lambda: store.commit("w", Lease("job-1", 2, 2)),
    ]
    shown: list[Seen] = []
    for step in steps:
        world.run(world.now + SECOND)
        step()
        shown.append(Seen(store, lease, world.now))
    world.run(world.now + SECOND)

    for number, then in enumerate(shown, 1):
        assert Seen(store, lease, number * SECOND) == then
        assert Seen(store, lease, (number + 1) * SECOND - 1) == then
    assert len({repr(vars(each)) for each in shown}) > 5


def test_a_look_is_asked_for_nothing_older_than_what_came_over_its_wire_before_it_was_sent():
    world = SimulatedWorld()
    floors: list[int] = []

    def aged(heard: int) -> int:
        floors.append(heard)
        return heard

    network = SimulatedNetwork(world, random.Random(1), StoreStatus(), trouble=lambda: 0.0, slowest=1.0, aged=aged)
    done: list[int] = []

    network.read(done.append, lambda _: None, lambda: None)
    network.call(lambda: done.append(world.now), lambda _: None, lambda: None)
    world.run(SECOND)
    network.read(done.append, lambda _: None, lambda: None)
    world.run(2 * SECOND)

    assert floors == [0, max(done)]
    assert 0 < floors[1] < SECOND


def test_what_was_not_heard_may_be_missing_from_a_look():
    world = SimulatedWorld()
    floors: list[int] = []
    status = StoreStatus()

    def aged(heard: int) -> int:
        floors.append(heard)
        return heard

    network = SimulatedNetwork(world, random.Random(1), status, trouble=lambda: 0.0, slowest=1.0, aged=aged)

    def applied_and_cut() -> Verdict:
        network.is_cut = True
        return Verdict.DONE

    network.call(applied_and_cut, lambda _: None, lambda: None)
    world.run(SECOND)
    network.is_cut = False
    network.read(lambda as_of: as_of, lambda _: None, lambda: None)
    world.run(2 * SECOND)

    assert floors == [0]


def test_old_looks_are_at_most_so_old_and_end_with_the_faults():
    scenario = next(each for each in map(draw, range(100)) if each.rates.stale_reads)
    place = Environment(scenario)
    place.world.run(50 * SECOND)

    ages = [place.world.now - place._aged(0) for _ in range(1000)]
    assert 0 == min(ages) < max(ages) <= scenario.rates.oldest * SECOND
    assert place.world.now - place._aged(place.world.now - 5) <= 5
    place.stop_faults()
    assert {place._aged(0) for _ in range(100)} == {place.world.now}


def all_until_empty(seed: int) -> Scenario:
    """Return a scenario in which answers are often late, and every worker ends when it believes that all is done."""
    scenario = draw(seed)
    seats = (
        replace(seat, settings=msgspec.structs.replace(seat.settings, until_empty=True)) for seat in scenario.seats
    )
    rates = replace(scenario.rates, trouble=0.25, lost_notifications=0.0)
    return replace(scenario, seats=tuple(seats), rates=rates)


def test_no_worker_ends_by_a_look_of_before_it_had_the_work_that_is_left(monkeypatch):
    seeds = range(85, 95)
    assert {run(all_until_empty(seed)).rule for seed in seeds} == {None}
    real = Machine.emptiness

    def trusts_any_look(machine: Machine, now: float, is_empty: bool) -> None:
        machine._claimed_since_check = False
        real(machine, now, is_empty)

    monkeypatch.setattr(Machine, "emptiness", trusts_any_look)

    assert "until empty" in {run(all_until_empty(seed)).rule for seed in seeds}


def test_a_failure_that_needs_old_looks_keeps_them_when_it_is_made_smaller(monkeypatch):
    mutant = next(each for each in LOOK_MUTANTS if each.name == "a verification is older than the claim")
    mutant.plant(monkeypatch)
    failed = next(verdict for verdict in map(run_seed, range(mutant.seeds)) if verdict.rule is not None)

    small = shrink(failed)

    assert small.rule == failed.rule == "effect"
    assert small.scenario.rates.stale_reads > 0
    assert len(small.scenario.works) <= 2
    again = run(small.scenario, hashed=True)
    assert again.digest == run(small.scenario, hashed=True).digest
    assert again.message == small.message
