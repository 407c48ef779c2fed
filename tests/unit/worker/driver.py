"""A small simulator: a store made of dicts, and a shell that runs the machine in any order that a seed picks.

A call is sent, later applied by the store, and later still answered, so answers arrive in another order than the
store acted in. With faults on, calls fail before or after they were applied, and leases are taken away.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from holdfast.model.job import Lease, LeasedJob
from holdfast.model.outcome import Cancelled, Completed, Failed, Failure, Outcome, Retried
from holdfast.store.values import Finish, Promotion, Verdict
from holdfast.worker.decision import Decision, Exit, Why, WorkerPhase
from holdfast.worker.machine import Machine
from holdfast.worker.settings import WorkerConfig


def leased(seq: int, fence: int = 1) -> LeasedJob:
    return LeasedJob(
        id=f"job-{seq}",
        seq=seq,
        queue="default",
        task="task",
        payload="{}",
        headers=None,
        priority=0,
        max_attempts=5,
        timeout=None,
        _enqueued_us=0,
        turn=0,
        attempt=1,
        excused=0,
        interrupted=0,
        lost=0,
        fence=fence,
    )


class Store:
    """Jobs are ready, scheduled (with the time they are due), leased under a fence, or done."""

    def __init__(self) -> None:
        self.fence = 0
        self.ready: list[int] = []
        self.scheduled: dict[int, float] = {}
        self.leased: dict[int, int] = {}
        self.done: dict[int, int] = {}  # seq: fence that ended it
        self.written: dict[tuple[int, int], Outcome | None] = {}

    def claim(self, limit: int) -> list[LeasedJob]:
        self.fence += 1
        taken, self.ready = self.ready[:limit], self.ready[limit:]
        for seq in taken:
            assert seq not in self.leased
            assert seq not in self.done
            self.leased[seq] = self.fence
        return [leased(seq, self.fence) for seq in taken]

    def finish(self, now: float, lease: Lease, outcome: Outcome | None) -> Verdict:
        place = (lease.seq, lease.fence)
        if place in self.written:
            return Verdict.DONE
        if self.leased.get(lease.seq) != lease.fence:
            return Verdict.LOST
        del self.leased[lease.seq]
        self.written[place] = outcome
        if isinstance(outcome, Retried):
            self.scheduled[lease.seq] = now + outcome.delay.total_seconds()
        else:
            assert lease.seq not in self.done, "completed twice"
            self.done[lease.seq] = lease.fence
        return Verdict.DONE

    def release(self, lease: Lease) -> None:
        if self.leased.get(lease.seq) == lease.fence:
            del self.leased[lease.seq]
            self.ready.insert(0, lease.seq)

    def promote(self, now: float) -> Promotion:
        due = [seq for seq, when in self.scheduled.items() if when <= now]
        for seq in due:
            del self.scheduled[seq]
            self.ready.insert(0, seq)
        soonest = min(self.scheduled.values(), default=None)
        return Promotion(len(due), None if soonest is None else timedelta(seconds=soonest - now))

    @property
    def is_empty(self) -> bool:
        return not (self.ready or self.scheduled or self.leased)


@dataclass
class Call:
    kind: str
    apply: Callable[[], Callable[[], None]]
    failed: Callable[[], None]
    answer: Callable[[], None] | None = None


@dataclass
class Driver:
    seed: int
    settings: WorkerConfig
    jobs: int = 60
    faults: bool = True
    now: float = 100.0
    calls: list[Call] = field(default_factory=list)
    running: list[LeasedJob] = field(default_factory=list)
    settling: set[tuple[int, int]] = field(default_factory=set)
    aborted: dict[tuple[int, int], list[Why]] = field(default_factory=dict)
    verdicts: list[list[Lease]] = field(default_factory=list)
    begun: set[tuple[int, int]] = field(default_factory=set)
    delivered: int = 0
    decides: int = 0
    stopped: bool = False
    exit: Exit | None = None
    wait: float | None = 0.0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.machine = Machine(self.settings)
        self.store = Store()
        self.store.ready = list(range(1, self.jobs + 1))

    # --- what the shell does ---

    def decide(self) -> None:
        self.decides += 1
        decision = self.machine.decide(self.now)
        self.wait = decision.wait
        self.exit = decision.exit
        self._send_work(decision)
        self._send_maintenance(decision)
        for job, why in decision.abort:
            whys = self.aborted.setdefault((job.seq, job.fence), [])
            assert why not in whys, "aborted twice for one reason"
            whys.append(why)

    def _send_work(self, decision: Decision) -> None:
        machine, store, sent_at = self.machine, self.store, self.now
        if decision.claim:
            assert not self.stopped, "claimed after stop"
            asked = decision.claim

            def claim() -> Callable[[], None]:
                jobs = store.claim(asked)

                def answer() -> None:
                    self.delivered += len(jobs)
                    machine.claimed(self.now, jobs, asked=asked, sent_at=sent_at)

                return answer

            self._send("claim", claim, lambda: machine.claim_failed(self.now))
        if decision.flush is not None:
            finishes = decision.flush
            assert finishes

            def flush() -> Callable[[], None]:
                verdicts = [self._finish(finish) for finish in finishes]
                return lambda: machine.flushed(self.now, finishes, verdicts)

            self._send("flush", flush, lambda: machine.flush_failed(self.now, finishes))
        for kind, leases in (("unstarted", decision.release_unstarted), ("started", decision.release_started)):
            if leases:
                self._send_release(kind, leases)

    def _finish(self, finish: Finish) -> Verdict:
        if self.faults and self.random.random() < 0.1:
            return Verdict.DELAYED
        return self.store.finish(self.now, finish.lease, finish.outcome)

    def _send_release(self, kind: str, leases: list[Lease]) -> None:
        assert all(((lease.seq, lease.fence) in self.begun) == (kind == "started") for lease in leases)

        def release() -> Callable[[], None]:
            for lease in leases:
                self.store.release(lease)
            return lambda: self.machine.released(self.now, leases)

        self._send(kind, release, lambda: self.machine.release_failed(self.now, leases))

    def _send_maintenance(self, decision: Decision) -> None:
        machine, store = self.machine, self.store

        def promote() -> Callable[[], None]:
            promotion = store.promote(self.now)
            return lambda: machine.promoted(self.now, promotion)

        def check() -> Callable[[], None]:
            is_empty = store.is_empty
            return lambda: machine.emptiness(self.now, is_empty)

        def nothing(answer: Callable[[], None]) -> Callable[[], Callable[[], None]]:
            return lambda: answer

        if decision.promote:
            self._send("maintenance", promote, lambda: machine.maintenance_failed(self.now))
        if decision.check_empty:
            self._send("maintenance", check, lambda: machine.maintenance_failed(self.now))
        if decision.rescue is not None:
            rescued = nothing(lambda: machine.rescued(self.now, 0, asked=10))
            self._send("maintenance", rescued, lambda: machine.maintenance_failed(self.now))
        if decision.prune:
            pruned = nothing(lambda: machine.pruned(self.now, 0, asked=10))
            self._send("maintenance", pruned, lambda: machine.maintenance_failed(self.now))

    def _send(self, kind: str, apply: Callable[[], Callable[[], None]], failed: Callable[[], None]) -> None:
        assert kind not in {call.kind for call in self.calls}, f"two calls of kind {kind} in flight"
        self.calls.append(Call(kind, apply, failed))

    # --- what happens ---

    def go_on_with_a_call(self) -> None:
        if not self.calls:
            return
        call = self.random.choice(self.calls)
        failing = self.faults and self.random.random() < 0.15
        if call.answer is None and not failing:
            call.answer = call.apply()
            return
        self.calls.remove(call)
        if call.answer is None or failing:
            call.failed()
        else:
            call.answer()

    def begin(self) -> None:
        while (job := self.machine.take()) is not None:
            place = (job.seq, job.fence)
            assert place not in self.begun, "taken twice"
            assert not self.stopped, "taken after stop"
            self.begun.add(place)
            self.running.append(job)
            assert len(self.running) <= self.settings.concurrency
            if self.random.random() < 0.5:
                return

    def end(self) -> None:
        if not self.running:
            return
        job = self.random.choice(self.running)
        place = (job.seq, job.fence)
        whys = self.aborted.get(place, [])
        if place in self.settling:
            self._settle(job)
            return
        if self.random.random() < 0.2 and not whys:
            self.settling.add(place)
            self.machine.holdings.settling(job.seq)
            return
        self.running.remove(job)
        self.machine.ended(self.now, job, self._outcome(whys))

    def _settle(self, job: LeasedJob) -> None:
        self.settling.discard((job.seq, job.fence))
        committed = self.random.random() < 0.7 and self.store.finish(self.now, job.lease, None) is Verdict.DONE
        if committed:
            if self.random.random() < 0.5:
                self.machine.holdings.settled(job.seq)
            if self.random.random() < 0.5:
                self.running.remove(job)
                self.machine.ended(self.now, job, None)
            else:
                self.machine.holdings.settled(job.seq)
        else:
            self.machine.holdings.unsettled(job.seq)

    def _outcome(self, whys: list[Why]) -> Outcome | None:
        if Why.CANCEL_ASKED in whys:
            return Cancelled("asked")
        if Why.SHUTDOWN in whys and self.random.random() < 0.7:
            return None
        failure = Failure("Error", "text")
        delay = timedelta(seconds=self.random.choice([0, 0, 0.2, 3]))
        outcomes: list[Outcome] = [Completed(), Completed(), Retried(delay, failure), Failed(failure)]
        return self.random.choice(outcomes)

    def steal(self) -> None:
        """A rescuer takes a lease away, and the job is ready again."""
        if self.faults and self.store.leased:
            seq = self.random.choice(list(self.store.leased))
            if (seq, self.store.leased[seq]) not in self.settling:
                del self.store.leased[seq]
                self.store.ready.insert(0, seq)

    def extend(self) -> None:
        """One round of the extending thread, whose verdicts reach the loop later."""
        holdings = self.machine.holdings
        due = holdings.due(self.now)
        lost = [lease for lease in due if self.store.leased.get(lease.seq) != lease.fence]
        holdings.extended([lease for lease in due if lease not in lost], self.now)
        holdings.lost(lost)
        if lost:
            self.verdicts.append(lost)

    def hear(self) -> None:
        if self.verdicts:
            self.machine.lost(self.now, self.verdicts.pop(0))

    def ask_to_cancel(self) -> None:
        held = self.machine.holdings.jobs
        if held and self.faults:
            self.machine.cancel_asked(self.now, [self.random.choice(list(held.values())).lease])

    def wake(self) -> None:
        self.machine.woken(self.now)

    def pass_time(self) -> None:
        self.now += self.random.choice([0.0001, 0.004, 0.05, 0.3, 2.0])

    def stop(self) -> None:
        self.stopped = True
        self.machine.stop(self.now)

    def step(self) -> None:
        actions = [self.go_on_with_a_call, self.decide, self.begin, self.end, self.pass_time]
        rare = [self.steal, self.extend, self.hear, self.wake, self.ask_to_cancel]
        self.random.choice(rare if self.random.random() < 0.15 else actions)()
        self.check()

    # --- what must hold ---

    def check(self) -> None:
        machine = self.machine
        jobs, held = machine.jobs, machine.holdings.jobs
        finishes, releases = jobs.finishes, jobs.releases
        places = [job.seq for job in jobs.prefetched]
        places += [seq for seq, job in jobs.running.items() if held.get(seq) is job]
        places += [*finishes.buffer, *finishes.unknown, *finishes.delayed, *finishes.flushing]
        places += [*releases._unstarted, *releases._started, *releases._flying]
        assert len(places) == len(set(places)), "a job is in two places"
        assert set(places) == set(held), "held is not the sum of its parts"
        assert len(jobs.running) + len(jobs.ghosts) <= self.settings.concurrency
        if self.exit is not None:
            assert not held
            assert machine.status().phase is WorkerPhase.ENDED

    def totals(self) -> int:
        totals = self.machine.status().totals
        return sum(getattr(totals, name) for name in totals.__struct_fields__)

    def run_out(self, bound: int) -> None:
        """With faults off: act on everything at once, and sleep only as long as the machine says."""
        self.faults = False
        limit = self.decides + bound
        while self.exit is None:
            assert self.decides < limit, f"does not come to an end: {self.machine.status()}"
            self.decide()
            self.extend()
            self.hear()
            busy = bool(self.calls)
            while self.calls:
                self.go_on_with_a_call()
            self.begin()
            busy = busy or bool(self.running)
            while self.running:
                self.end()
            self.check()
            if not busy:
                assert self.wait is not None or self.exit is not None, "waits for an event that cannot come"
                self.now += self.wait or 0.0


def finish_of(job: LeasedJob, outcome: Outcome | None = None) -> Finish:
    return Finish(job.lease, outcome or Completed())
