"""Maintenance by any worker, for all: promote due jobs, rescue expired leases, prune, check for emptiness.

None of it needs a leader: every step is atomic in the store and harmless if two workers do it at once. One such call is
in flight at a time, so that maintenance never displaces jobs.
"""

from __future__ import annotations

from datetime import timedelta
from enum import Enum, auto

from holdfast.model.lease_rules import RESCUE_ACCESS_PARTS
from holdfast.runtime.reachability import GAP_PER_LEASE, Access
from holdfast.store.values import Promotion
from holdfast.worker.backoff import Backoff
from holdfast.worker.settings import WorkerConfig

RARELY = 5  # promotions are this many times rarer while no scheduled job is known
SOONEST = 0.01  # bounds the rate of promotions if a due job is not promoted
NEVER = float("inf")


class Chore(Enum):
    """A kind of maintenance, in the order of urgency."""

    PROMOTE = auto()
    RESCUE = auto()
    CHECK_EMPTY = auto()
    PRUNE = auto()


class Maintenance:
    """When each chore is due."""

    __slots__ = ("_backoff", "_begun", "_half", "_settings", "_when", "access", "in_flight", "next_due_at")

    def __init__(self, settings: WorkerConfig) -> None:
        self._settings = settings
        self._backoff = Backoff()
        self._half = settings.lease / RESCUE_ACCESS_PARTS
        self._begun: float | None = None  # the access for which rescue was last planned
        self._when = {Chore.PROMOTE: -NEVER, Chore.RESCUE: -NEVER, Chore.CHECK_EMPTY: -NEVER, Chore.PRUNE: -NEVER}
        self.access = Access(gap=settings.lease * GAP_PER_LEASE)
        self.in_flight: Chore | None = None
        self.next_due_at = NEVER  # when the next known scheduled job is due

    def chore(self, now: float, *, may_check: bool) -> Chore | None:
        """Return the chore to do now, if any; it is then in flight."""
        if self.in_flight is not None or now < self._backoff.until:
            return None
        self._plan_rescue(now)
        for chore, when in self._when.items():
            if now >= when and (chore is not Chore.CHECK_EMPTY or may_check):
                self.in_flight = chore
                self._when[chore] = now + self._period(chore)
                if chore is Chore.RESCUE and self._begun is not None:
                    self._when[chore] = self._rescue_at(now, self._begun)
                return chore
        return None

    def due_at(self, *, may_check: bool) -> float:
        """Return when `chore` will next return one if no event arrives before; call it after `chore`."""
        if self.in_flight is not None:
            return NEVER
        whens = [when for chore, when in self._when.items() if chore is not Chore.CHECK_EMPTY or may_check]
        return max(min(whens), self._backoff.until)

    def unbroken(self, now: float) -> timedelta:
        """Return the duration of uninterrupted access so far."""
        began = self.access.began(now)
        return timedelta(seconds=0 if began is None else now - began)

    def _period(self, chore: Chore) -> float:
        settings = self._settings
        match chore:
            case Chore.PROMOTE:
                return settings.promote_every * RARELY
            case Chore.RESCUE:
                return settings.rescue_period
            case Chore.CHECK_EMPTY:
                return settings.poll_interval
            case Chore.PRUNE:
                return settings.prune_every

    def _plan_rescue(self, now: float) -> None:
        began = self.access.began(now)
        if began is None:
            self._when[Chore.RESCUE] = NEVER
        elif began != self._begun or self._when[Chore.RESCUE] == NEVER:
            self._when[Chore.RESCUE] = self._rescue_at(now, began)
        self._begun = began

    def _rescue_at(self, now: float, began: float) -> float:
        """Return the next time to rescue: by period, and as soon as access has been uninterrupted for half a lease."""
        half = began + self._half
        regular = now + self._settings.rescue_period
        return half if now < half < regular else regular

    def _sooner(self, chore: Chore, when: float) -> None:
        self._when[chore] = min(self._when[chore], when)

    def woken(self, now: float) -> None:
        """Process a notification: the new job may be scheduled, and the store may no longer be empty."""
        self._sooner(Chore.PROMOTE, now + self._settings.promote_every)
        self._when[Chore.CHECK_EMPTY] = -NEVER

    def scheduled(self, now: float, delay: float) -> None:
        """Process a job that this worker has scheduled."""
        self.next_due_at = min(self.next_due_at, now + delay)
        self._sooner(Chore.PROMOTE, now + max(delay, 0.0))

    def promoted(self, now: float, promotion: Promotion) -> bool:
        """Process the result of a promotion; return whether jobs may be ready."""
        reached = now >= self.next_due_at  # another worker may have promoted it first
        self.next_due_at = NEVER
        if promotion.moved >= self._settings.promote_limit:
            self._when[Chore.PROMOTE] = now
        elif promotion.next_due is not None:
            due = max(promotion.next_due.total_seconds(), SOONEST)
            self.next_due_at = now + due
            self._sooner(Chore.PROMOTE, now + min(due, self._settings.promote_every))
        self._answered()
        return reached or promotion.moved > 0

    def rescued(self, now: float, count: int, *, asked: int) -> None:
        """Process the number of rescued leases; a full batch is followed by another."""
        if count >= asked:
            self._when[Chore.RESCUE] = now
        self._answered()

    def pruned(self, now: float, count: int, *, asked: int) -> None:
        """Process the number of pruned jobs; a full batch is followed by another."""
        if count >= asked:
            self._when[Chore.PRUNE] = now
        self._answered()

    def checked(self) -> None:
        """Process the reply to the check for emptiness."""
        self._answered()

    def _answered(self) -> None:
        self.in_flight = None
        self._backoff.succeeded()

    def failed(self, now: float) -> None:
        """Process the failure of the chore in flight; it is due again after a backoff."""
        if self.in_flight is not None and self.in_flight is not Chore.RESCUE:
            self._when[self.in_flight] = now
        self.in_flight = None
        self._backoff.failed(now)
