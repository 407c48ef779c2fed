"""Limits per key in the reference model."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.model.job import JobState
from holdfast.model.key_limits import KeyUse
from holdfast.model.limits import Limit, LimitKey, LimitUse, parsed_rate
from holdfast.testing.reference.limits import ReferenceLimits
from holdfast.testing.reference.records import ReferenceJob

Scope = tuple[str, str, str]
Members = Mapping[str, int | None]
_KEYED = frozenset({JobState.READY, JobState.RUNNING, JobState.BLOCKED})


class ReferenceKeyLimits(ReferenceLimits):
    """Admits jobs with limit keys: those that became ready in a verb are blocked first, then the keys are filled."""

    _seen: Mapping[Scope, Members] = {}

    def limit(self, key: LimitKey, limit: Limit | None) -> None:
        """Set or remove a limit, and apply it to the keys that exist."""
        super().limit(key, limit)
        if key.kind == "key":
            for scope in self.key_wakes:
                if scope[1] == key.name:
                    self.key_wakes[scope] = self.now
            self.wake_keys()

    def settle_keys(self) -> None:
        """Fill every key whose members a verb has changed."""
        for record in self.records.values():
            if record.limit_scope is not None and record.state is JobState.READY and record.admission is None:
                record.state = JobState.BLOCKED
        members = self._members()
        for scope in [*members, *(scope for scope in self._seen if scope not in members)]:
            if members.get(scope) != self._seen.get(scope):
                self._fill(scope)
        self._seen = self._members()

    def wake_keys(self) -> None:
        """Fill every key whose time has come."""
        for scope in [scope for scope, at in self.key_wakes.items() if at is not None and at <= self.now]:
            self._fill(scope)
        self._seen = self._members()

    def next_wake(self) -> int | None:
        """Return the first instant at which a key is to be looked at."""
        return min((at for at in self.key_wakes.values() if at is not None), default=None)

    def _members(self) -> dict[Scope, Members]:
        members: dict[Scope, dict[str, int | None]] = {}
        for record in self.records.values():
            scope = record.limit_scope
            if scope is not None and record.state in _KEYED and not record.waits:
                members.setdefault(scope, {})[record.new.id] = record.admission
        return dict(members)

    def _fill(self, scope: Scope) -> None:
        mine = [record for record in self.records.values() if record.limit_scope == scope and not record.waits]
        key = self._key_use(scope, mine)
        for record in mine:
            record.last_start = None
            if record.state is JobState.RUNNING and key.use.rate_jobs is not None:
                record.admitted_us = None
        key = self._send_back(key, mine)
        for record in sorted(_in(JobState.BLOCKED, mine), key=_turn)[: key.room]:
            if record.run_us > self.now:
                record.state = JobState.SCHEDULED
                continue
            self.last_admission += 1
            record.state, record.admission = JobState.READY, self.last_admission
            record.admitted_us = None if key.use.rate_jobs is None else self.now
            key = key.admitted(1)
        waiting = bool(_in(JobState.BLOCKED, mine))
        if key.is_idle and not waiting:
            self.key_rates.pop(scope, None)
            self.key_wakes.pop(scope, None)
            return
        self.key_rates[scope] = key.use.rate_at
        self.key_wakes[scope] = key.wake_at(is_waiting=waiting)

    def _send_back(self, key: KeyUse, mine: list[ReferenceJob]) -> KeyUse:
        back = sorted(_in(JobState.READY, mine), key=_turn, reverse=True)[: key.excess]
        for record in back:
            record.leave(JobState.BLOCKED)
        return key.sent_back(len(back)) if back else key

    def _key_use(self, scope: Scope, mine: list[ReferenceJob]) -> KeyUse:
        limit = self.limits.get(LimitKey("key", scope[1]))
        rate = None if limit is None or limit.rate is None else parsed_rate(limit.rate)
        admitted = _in(JobState.READY, mine) + _in(JobState.RUNNING, mine)
        use = LimitUse(
            kind="",
            name="",
            max_running=None if limit is None else limit.running,
            rate_jobs=None if rate is None else rate.jobs,
            rate_span=None if rate is None else rate.span,
            rate_burst=None if rate is None or limit is None else limit.burst,
            rate_at=self.key_rates.get(scope, 0),
            running=len(admitted),
            now=self.now,
        )
        pending = [record.admitted_us for record in _in(JobState.READY, mine) if record.admitted_us is not None]
        starts = [record.last_start for record in mine if record.last_start is not None]
        starts += [
            record.lease.started_us
            for record in _in(JobState.RUNNING, mine)
            if record.admitted_us is not None and record.lease is not None
        ]
        unrated = 0 if rate is None else len(_in(JobState.READY, mine)) - len(pending)
        return KeyUse(use, pending, starts, unrated).counted()


def _in(state: JobState, records: list[ReferenceJob]) -> list[ReferenceJob]:
    return [record for record in records if record.state is state]


def _turn(record: ReferenceJob) -> tuple[int, int]:
    return record.turn_us, record.seq
