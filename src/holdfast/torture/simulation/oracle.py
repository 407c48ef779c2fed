"""A job as the judge sees it: an independent statement of the budget and the verbs, from calls and replies only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from holdfast.model.budget import MAX_INTERRUPTED, MAX_LOST
from holdfast.model.instants import span_micros
from holdfast.model.job import JobState, NewJob
from holdfast.model.outcome import Outcome
from holdfast.store.values import ClaimRequest


@dataclass(slots=True)
class Case:
    """The known state of one job; `state` is None while it is open, `fence` while it is not leased."""

    new: NewJob
    due: int
    place: int
    """Its place within its order key, if it has one."""
    came_at: int = 0
    """When it was enqueued or retried, in true time."""
    taken_at: int = 0
    """When it was last claimed, in true time."""
    last_fence: int = 0
    state: JobState | None = None
    fence: int | None = None
    worker: str = ""
    claimed: int = 0
    expires: int = 0
    duration: int = 0
    isolated: bool = False
    claims: int = 0
    excused: int = 0
    interrupted: int = 0
    lost: int = 0
    cancel_asked: bool = False
    transactional: bool = False
    effects: int = 0
    ended_by: dict[int, type[Outcome]] = field(default_factory=dict[int, "type[Outcome]"])
    begun: set[int] = field(default_factory=set[int])
    returned: set[int] = field(default_factory=set[int])
    gave_up: set[int] = field(default_factory=set[int])
    """The fences under which its handler gave up."""

    @property
    def id(self) -> str:
        """The job's id."""
        return self.new.id

    @property
    def charged(self) -> int:
        """The charged attempts."""
        return self.claims - self.excused

    def is_delayed(self, now: int) -> bool:
        """Whether it is due later, and has not been claimed since: such a job does not keep a worker running.

        Its caller delayed it, or the store's clock was set back since.
        """
        return not self.claims and (self.new.delay is not None or self.due > now)

    def claim(self, request: ClaimRequest, fence: int, now: int, *, at: int) -> None:
        """Record a claim, by the store's clock and in true time."""
        self.claims += 1
        self.fence = self.last_fence = fence
        self.taken_at = at
        self.worker = request.worker_id
        self.claimed = now
        self.duration = span_micros(request.lease)
        self.expires = now + self.duration
        self.isolated = self.lost > 0 and request.isolates

    def free(self) -> None:
        """Record that it is no longer leased."""
        self.fence = None

    def end(self, state: JobState) -> None:
        """Record that it has ended."""
        self.fence = None
        self.state = state

    def release(self) -> None:
        """Record a release before it started, or an operator's reset: excused."""
        self.excused += 1
        self._again_unless_cancelled()

    def interrupt(self) -> None:
        """Record an interruption that the job did not cause: excused, within a bound."""
        if self.interrupted < MAX_INTERRUPTED:
            self.interrupted += 1
            self.release()
        else:
            self._again_unless_used_up()

    def lose(self, *, alone: bool) -> None:
        """Record the death of its worker, or of its own child process."""
        if not alone:
            self.lost = max(self.lost, 1)
            self.interrupt()
            return
        self.lost += 1
        if self.lost >= MAX_LOST and not self.cancel_asked:
            self.end(JobState.FAILED)
        else:
            self._again_unless_used_up()

    def _again_unless_used_up(self) -> None:
        if self.charged >= self.new.max_attempts and not self.cancel_asked:
            self.end(JobState.FAILED)
        else:
            self._again_unless_cancelled()

    def _again_unless_cancelled(self) -> None:
        if self.cancel_asked:
            self.end(JobState.CANCELLED)
        else:
            self.free()

    def reopen(self, now: int) -> None:
        """Record an operator's retry."""
        self.state = None
        self.cancel_asked = False
        self.due = now
        self.excused = self.claims
        self.interrupted = 0
        self.lost = min(self.lost, 1)


class Docket:
    """All cases, and the paused queues; `clock` is the store's."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self.cases: dict[str, Case] = {}
        self.paused: set[str] = set()

    def head(self, case: Case) -> Case:
        """Return the head of the job's order key; the job itself if it has no key."""
        if case.new.order_key is None:
            return case
        line = (case.new.queue, case.new.order_key)
        standing = [
            each for each in self.cases.values() if each.state is None and (each.new.queue, each.new.order_key) == line
        ]
        return min(standing, key=lambda each: each.place)

    def left(self, queues: Sequence[str] | None) -> list[Case]:
        """Return what is left to do for a worker of these queues: not delayed jobs, nor those of paused queues."""
        now = self._clock()
        return [
            case
            for case in self.cases.values()
            if case.state is None
            and (queues is None or case.new.queue in queues)
            and (case.fence is not None or (case.new.queue not in self.paused and not self.head(case).is_delayed(now)))
        ]
