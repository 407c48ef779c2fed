"""Jobs of limits beside a backlog of others: they are claimed while jobs are prefetched, and begin before those."""

from __future__ import annotations

from itertools import count

from tests.unit.worker.driver import leased
from tests.unit.worker.machines import begin, machine

from holdfast.model.outcome import Completed
from holdfast.worker.decision import Decision
from holdfast.worker.machine import Machine

SLOTS = 10
TASK = 0.002  # seconds that a job takes
LIMITED = range(1_000_001, 1_000_100)


class Beside:
    """A worker whose handlers take `TASK`, on a store with an endless backlog of jobs without limits.

    `wanted` are the seqs of ready jobs of a limit, whose turn comes first; `open_slots` are those of the limit.
    """

    def __init__(self, m: Machine) -> None:
        self.machine = m
        self.now = 0.0
        self.plain = count(1)
        self.wanted: list[int] = []
        self.open_slots = len(LIMITED)
        self.claims: list[Decision] = []
        self.begun_after: dict[int, float] = {}
        self.claimed_at: dict[int, float] = {}

    def run(self, seconds: float) -> None:
        """Let time pass; each call of the store takes one step."""
        until = self.now + seconds
        while self.now < until:
            self._step()
            self.now += TASK

    def _step(self) -> None:
        m = self.machine
        for job in list(m.jobs.running.values()):
            m.ended(self.now, job, None)
            m.holdings.settled(job.seq)
            self.open_slots += job.seq in LIMITED
        decision = m.decide(self.now)
        while (begun := m.take()) is not None:
            if begun.seq in LIMITED:
                self.begun_after[begun.seq] = self.now - self.claimed_at[begun.seq]
        if decision.claim:
            self._claim(decision)

    def _claim(self, decision: Decision) -> None:
        self.claims.append(decision)
        most = min(decision.claim, decision.slots, self.open_slots)
        taken, self.wanted = self.wanted[:most], self.wanted[most:]
        self.open_slots -= len(taken)
        self.claimed_at |= dict.fromkeys(taken, self.now)
        plain = [next(self.plain) for _ in range(decision.claim - len(taken))]
        jobs = [leased(seq) for seq in (*plain, *taken)]
        limited_for = float("inf") if self.wanted else None
        self.machine.claimed(
            self.now, jobs, asked=decision.claim, sent_at=self.now, limited=taken, limited_for=limited_for
        )


def busy() -> Beside:
    """A worker that prefetches, on a store without limits so far."""
    beside = Beside(machine(concurrency=SLOTS, promote_every=60.0))
    beside.run(2.0)
    assert beside.machine.jobs.waiting > SLOTS
    return beside


def test_jobs_of_a_limit_are_claimed_while_others_are_prefetched_and_begin_before_them():
    beside = busy()
    beside.wanted = list(LIMITED[:3])
    beside.run(0.3)
    assert list(beside.begun_after) == list(LIMITED[:3])
    assert max(beside.begun_after.values()) <= 2 * TASK


def test_jobs_of_a_limit_are_claimed_for_no_more_slots_than_there_are():
    beside = busy()
    beside.wanted = list(LIMITED)
    beside.run(0.3)
    assert max(decision.slots for decision in beside.claims) == SLOTS
    assert max(beside.begun_after.values()) <= 2 * TASK


def test_the_end_of_a_limited_job_is_followed_by_a_claim_although_enough_is_prefetched():
    beside = busy()
    beside.wanted = list(LIMITED)
    beside.open_slots = 1
    beside.run(0.3)
    assert len(beside.begun_after) >= 20


def test_without_limits_a_claim_waits_until_half_of_the_prefetched_jobs_have_begun():
    beside = busy()
    beside.claims.clear()
    beside.run(1.0)
    assert len(beside.claims) <= 12


def test_no_slot_is_expected_soon_while_nothing_is_prefetched():
    m = machine(concurrency=2)
    assert (m.decide(0.0).claim, m.decide(0.0).slots) == (2, 0)
    m.claimed(0.0, [leased(1)], asked=2, sent_at=0.0)
    assert m.take() is not None
    m.woken(0.1)
    decision = m.decide(0.1)
    assert (decision.claim, decision.slots) == (1, 1)


def test_jobs_of_a_limit_keep_their_order_before_the_others():
    m = machine(concurrency=4)
    m.decide(0.0)
    m.claimed(0.0, [leased(seq) for seq in (1, 2, 3, 4)], asked=4, sent_at=0.0, limited=[2, 4])
    assert [job.seq for job in iter(m.take, None)] == [2, 4, 1, 3]


def test_a_limited_job_whose_end_is_not_written_yet_leaves_its_slot_to_another():
    m = machine(concurrency=1)
    asked = m.decide(0.0).claim
    m.claimed(0.0, [leased(1)], asked=asked, sent_at=0.0, limited=[1])
    assert m._limited.room == 0
    m.ended(0.1, begin(m), Completed())
    assert m._limited.room == 1
    assert not m._limited.any_ended()  # the lease counts for the limit until the end is written
