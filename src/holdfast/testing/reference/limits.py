"""Limits of queues and tasks in the reference model."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.model.job import JobState
from holdfast.model.limits import Limit, LimitKey, LimitUse, limits_of, parsed_rate
from holdfast.testing.reference.records import ReferenceJob, ReferenceState


class ReferenceLimits(ReferenceState):
    """Sets limits, and decides whether one refuses a job."""

    def limit(self, key: LimitKey, limit: Limit | None) -> None:
        """Set or remove a limit."""
        (self.queues if key.kind == "queue" else self.known_tasks).add(key.name)
        self.limits.pop(key, None)
        if limit is not None:
            self.limits[key] = limit

    def declare(self, limits: Mapping[LimitKey, Limit | None]) -> list[LimitKey]:
        """Set limits whose declaration is new; return those."""
        changed = [key for key, limit in sorted(limits.items()) if limit != self.declared.get(key)]
        for key in changed:
            limit = limits[key]
            self.limit(key, limit)
            self.declared.pop(key, None)
            if limit is not None:
                self.declared[key] = limit
        return changed

    def limit_uses(self) -> list[LimitUse]:
        """List the limits with their use."""
        return [self._use(key, limit) for key, limit in sorted(self.limits.items())]

    def _use(self, key: LimitKey, limit: Limit) -> LimitUse:
        rate = None if limit.rate is None else parsed_rate(limit.rate)
        running = sum(
            record.state is JobState.RUNNING
            and key in limit_keys(record)
            and (key.kind != "key" or record.new.limit_key is not None)
            for record in self.records.values()
        )
        return LimitUse(
            kind=key.kind,
            name=key.name,
            max_running=limit.running,
            rate_jobs=None if rate is None else rate.jobs,
            rate_span=None if rate is None else rate.span,
            rate_burst=None if rate is None else limit.burst,
            rate_at=self.rate_at.get(key, 0),
            running=running,
            now=self.now,
        )

    def limited(self, record: ReferenceJob) -> list[LimitKey]:
        """Return the limits that concern a job."""
        return [key for key in limit_keys(record) if key in self.limits]

    def refusing(self, record: ReferenceJob) -> list[LimitUse]:
        """Return the limits that refuse the start of a job now, with their use."""
        return [use for key in self.limited(record) if not (use := self._use(key, self.limits[key])).room]

    def spend(self, record: ReferenceJob) -> None:
        """Use the rates of a job that starts."""
        for key in self.limited(record):
            use = self._use(key, self.limits[key])
            if use.rate_jobs is not None and key.kind != "key":
                self.rate_at[key] = use.rate_after(1)


def limit_keys(record: ReferenceJob) -> tuple[LimitKey, ...]:
    """Return what limits of a job may concern: its queue, its task, and each key of its task."""
    return limits_of(record.new.queue, record.new.task)
