"""Simulated handlers: started, ended, aborted and settled as in `worker.attempts` and `jobs.context`.

```text
   loop          ends on the loop, so not while it is blocked; aborted by cancellation
   thread        ends by itself; cannot be aborted, and past its timeout it kills the process
   transaction   at its end commits an effect with the completion; after an unknown commit verifies the lease
   using         the same in a transaction of the caller, which may be rolled back
   lost before   isolated in a child process, of any kind: its crash is an outcome
```
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal

from holdfast.model.job import LeasedJob
from holdfast.model.outcome import Cancelled, Completed, Failed, Failure, Lost, Outcome, Retried, Snoozed
from holdfast.model.retry import Exponential, decide
from holdfast.store.values import Standing, Verdict
from holdfast.torture.simulation.network import always
from holdfast.torture.simulation.scenario import Act, Kind, SimulatedAttempt, SimulatedWork
from holdfast.torture.simulation.world import SECOND
from holdfast.worker.decision import Why

if TYPE_CHECKING:
    from holdfast.torture.simulation.shell import Shell


class _SimulatedGoing(Enum):
    ON = "the attempt continues"


RUNNING: Final = _SimulatedGoing.ON
Running = Literal[_SimulatedGoing.ON]
COMPLETED = Completed()
_RETRY = Exponential(0.1, 2, cap=2.0, jitter="full")
_VERIFY_AGAIN = SECOND // 2
_ROLLED_BACK = 0.2
_PROMPT = 0.7


@dataclass(slots=True, eq=False)
class SimulatedRun:
    """One attempt in progress."""

    job: LeasedJob
    work: SimulatedWork
    plan: SimulatedAttempt
    is_apart: bool
    """In a child process."""
    is_over: bool = False
    is_committing: bool = False
    is_settled: bool = False
    is_used: bool = False
    """Completed in the caller's own transaction, which may not be committed."""
    why: Why | None = None

    @property
    def is_on_loop(self) -> bool:
        """Whether it needs the event loop to continue."""
        return self.work.kind is not Kind.THREAD and not self.is_apart


class SimulatedAttempts:
    """The handlers of one worker."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._env = shell.env
        self._world = shell.env.world
        self._judge = shell.env.store.judge
        self._dice = shell.env.work
        self._runs: dict[tuple[int, int], SimulatedRun] = {}

    def begin(self, job: LeasedJob) -> Outcome | Running:
        """Start an attempt; return its outcome if it ended immediately."""
        work = self._env.works[job.id]
        plan = work.attempt(job.attempt)
        self._judge.began(self._shell.truth, job, len(self._runs) + 1)
        self._world.note(self._shell.id, "begin", (job.id,), f"fence {job.fence} attempt {job.attempt}")
        run = SimulatedRun(job, work, plan, is_apart=job.lost > 0)
        if work.kind is Kind.LOOP and not (plan.takes or job.lost or job.timeout) and plan.act is not Act.CRASH:
            return self._outcome(run)
        key = (job.seq, job.fence)
        self._runs[key] = run
        limit = None if job.timeout is None else int(job.timeout * SECOND)
        if job.timeout is not None and not run.is_apart:
            self._shell.keeper.limits[key] = self._shell.clock() + job.timeout
        if plan.act is Act.BLOCK and run.is_on_loop:
            self._shell.block(plan.takes)
        elif limit is not None and plan.takes > limit and (run.is_on_loop or run.is_apart):
            self._later(run, limit, lambda: self._end(run, self._error(job, "TimeLimit")))
            return RUNNING
        self._later(run, plan.takes, lambda: self._body(run))
        return RUNNING

    def _later(self, run: SimulatedRun, span: int, action: Callable[[], None]) -> None:
        """Continue a handler after a while, unless it has ended by then."""

        def go_on() -> None:
            if not (run.is_over or self._shell.is_over):
                action()

        def arrive() -> None:
            frozen_until = self._shell.frozen_until
            if run.is_on_loop:
                self._shell.post(go_on)
            elif not run.is_apart and self._world.now < frozen_until:
                self._world.at(frozen_until, arrive)
            else:
                go_on()

        self._world.after(span, arrive)

    # --- ends ---------------------------------------------------------------------------------------------------------

    def _outcome(self, run: SimulatedRun) -> Outcome:
        match run.plan.act:
            case Act.RETURN | Act.BLOCK | Act.CRASH:
                self._judge.cases[run.job.id].returned.add(run.job.fence)
                return COMPLETED
            case Act.RAISE:
                return self._error(run.job, "Raised")
            case Act.SNOOZE:
                return Snoozed(timedelta(seconds=self._dice.random()))
            case Act.CANCEL:
                self._judge.cases[run.job.id].gave_up.add(run.job.fence)
                return Cancelled("the handler gave up")

    def _error(self, job: LeasedJob, name: str) -> Outcome:
        failure = Failure(name, name)
        delay = decide(_RETRY, job.used_attempts, error=None, draw=self._dice.random()).delay
        return Failed(failure) if delay is None or job.is_last_attempt else Retried(delay, failure)

    def _body(self, run: SimulatedRun) -> None:
        """Reach the end of a handler's work."""
        if run.plan.act is Act.CRASH:
            if run.is_apart:
                self._end(run, Lost(Failure("ChildDied", "the child process died")))
            else:
                self._shell.die(f"killed by {run.job.id}")
        elif run.plan.act in {Act.RETURN, Act.BLOCK} and run.work.kind is Kind.TRANSACTION:
            self._commit(run)
        elif run.plan.act in {Act.RETURN, Act.BLOCK} and run.work.kind is Kind.USING:
            self._use(run)
        else:
            self._end(run, self._outcome(run))

    def _end(self, run: SimulatedRun, outcome: Outcome | None) -> None:
        """Report the end of an attempt, once, on the loop."""
        run.is_over = True
        key = (run.job.seq, run.job.fence)
        self._shell.keeper.limits.pop(key, None)

        def report() -> None:
            del self._runs[key]
            self._shell.ended(run.job, outcome)

        self._shell.post(report)

    # --- transactions -------------------------------------------------------------------------------------------------

    def _call(
        self,
        run: SimulatedRun,
        act: Callable[[], Verdict | None],
        done: Callable[[Verdict | None], None],
        failed: Callable[[], None],
    ) -> None:
        """Commit a transaction; it is rolled back after a third of the lease."""
        world = self._world
        limit = world.now + int(self._shell.seat.settings.lease * SECOND) // 3

        def commit() -> Verdict | None:
            return act() if world.now <= limit else None

        self._judge.cases[run.job.id].transactional = True
        run.is_committing = True
        self._shell.machine.holdings.settling(run.job.seq)
        self._shell.network.call(
            commit,
            lambda verdict: self._later(run, 0, lambda: done(verdict)),
            lambda: self._later(run, 0, failed),
            overtakes=False,
        )

    def _commit(self, run: SimulatedRun) -> None:
        holdings, lease = self._shell.machine.holdings, run.job.lease
        store, actor = self._env.store, self._shell.id

        def refused(name: str) -> None:
            run.is_committing = False
            holdings.unsettled(run.job.seq)
            self._end(run, self._error(run.job, name))

        def settled() -> None:
            run.is_committing = False
            run.is_settled = True
            holdings.settled(run.job.seq)
            lingers = int(self._dice.random() * SECOND) if self._dice.random() > _PROMPT else 0
            self._later(run, lingers, lambda: self._end(run, None))

        def done(verdict: Verdict | None) -> None:
            if verdict is Verdict.DONE:
                settled()
            else:
                refused("LeaseLost")

        def verified(standing: Standing) -> None:
            if standing is Standing.COMPLETED:
                settled()
            else:
                refused("OutcomeUnknown")

        def unknown() -> None:
            self._shell.network.read(
                lambda as_of: store.verify(actor, lease, as_of=as_of),
                lambda standing: self._later(run, 0, lambda: verified(standing)),
                lambda: self._later(run, 0, lambda: self._end(run, self._error(run.job, "StoreUnavailable"))),
                writes=always,
            )

        self._call(run, lambda: store.commit(actor, lease), done, unknown)

    def _use(self, run: SimulatedRun) -> None:
        """Complete in the caller's own transaction; the lease is verified afterwards."""
        run.is_used = True
        store, actor, lease = self._env.store, self._shell.id, run.job.lease
        is_kept = self._dice.random() > _ROLLED_BACK

        def act() -> Verdict | None:
            return store.commit(actor, lease) if is_kept else None

        self._call(run, act, lambda _: self._verify(run, COMPLETED), lambda: self._verify(run, COMPLETED))

    def _verify(self, run: SimulatedRun, outcome: Outcome) -> None:
        """Verify the lease until there is a reply; this cannot be aborted."""
        run.is_over = True
        holdings = self._shell.machine.holdings

        def verified(standing: Standing) -> None:
            if self._shell.is_over:
                return
            if standing is Standing.COMPLETED:
                holdings.settled(run.job.seq)
                self._end(run, None)
                return
            holdings.unsettled(run.job.seq)
            uncommitted = standing is Standing.HELD and isinstance(outcome, Completed)
            self._end(run, self._error(run.job, "Uncommitted") if uncommitted else outcome)

        def verify() -> None:
            if not self._shell.is_over:
                store, actor = self._env.store, self._shell.id
                self._shell.network.read(
                    lambda as_of: store.verify(actor, run.job.lease, as_of=as_of),
                    lambda standing: self._shell.post(lambda: verified(standing)),
                    lambda: self._world.after(_VERIFY_AGAIN, verify),
                    writes=always,
                )

        verify()

    # --- aborts -------------------------------------------------------------------------------------------------------

    def abort(self, job: LeasedJob, why: Why) -> None:
        """Ask a handler to stop."""
        run = self._runs.get((job.seq, job.fence))
        if run is None or run.is_over:
            return
        self._world.note(self._shell.id, "abort", (job.id,), f"fence {job.fence} {why}")
        was_aborted, run.why = run.why is not None, why
        if run.is_apart:
            if why is not Why.LEASE_LOST or not run.is_committing:
                self._interrupt(run)
        elif run.is_on_loop and not run.work.swallows and not was_aborted:
            unwinds = 0 if self._dice.random() < _PROMPT else int(self._dice.random() * SECOND)
            if run.is_committing and not run.is_used:
                self._shell.machine.holdings.unsettled(job.seq)
                run.is_committing = False
            run.is_over = True  # none of its own work continues
            self._world.after(unwinds, lambda: self._shell.post(lambda: self._interrupt(run)))

    def _interrupt(self, run: SimulatedRun) -> None:
        """End a cancelled attempt."""
        outcome = Cancelled("cancelled while it ran, as requested") if run.why is Why.CANCEL_ASKED else None
        if outcome is not None and run.is_used:
            self._verify(run, outcome)
        else:
            self._end(run, None if run.is_settled else outcome)
