"""The history of one job, as invariants see it."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar, cast

from holdfast.model.job import FINAL_STATES
from holdfast.torture.events import (
    AttemptBegan,
    AttemptRow,
    Claimed,
    DumpedJob,
    EffectRow,
    EnqueueAnswered,
    EnqueueCalled,
    EnqueueRefused,
    HistoryRecord,
    RetryCalled,
    Takes,
)

E = TypeVar("E", bound=HistoryRecord)
_NONE: list[Any] = []
_FINAL = frozenset(state.value for state in FINAL_STATES)


class Entry:
    """A record and the process that wrote it."""

    __slots__ = ("event", "process")

    def __init__(self, process: str, event: HistoryRecord) -> None:
        self.process = process
        self.event = event


class ClaimSeen(NamedTuple):
    """A claim that was answered, or under which a handler started.

    It was made between `sent_us` and `at_us`. `process` is the one that claimed, which holds the job even if a child
    process runs it; if the claim itself was not recorded (`is_recorded` is False), it is the process that ran the job.
    """

    fence: int
    attempt: int
    sent_us: int
    at_us: int
    process: str
    is_recorded: bool
    direct: bool = False
    """Whether by `app.claim`: then only the caller extends the lease, and the job runs in the claiming process."""


class JobHistory:
    """All records of one job. Lists are in order of time, `attempts` and `claims` in order of fences."""

    __slots__ = ("_by_kind", "attempts", "call", "claims", "entries", "id", "row", "rows")

    def __init__(self, job: str, entries: list[Entry], call: EnqueueCalled | None = None) -> None:
        entries.sort(key=lambda entry: entry.event.at_us)
        self.id = job
        self.entries = entries
        by_kind: dict[type[HistoryRecord], list[Entry]] = {}
        for entry in entries:
            by_kind.setdefault(type(entry.event), []).append(entry)
        self._by_kind = by_kind
        self.rows: list[DumpedJob] = self.of(DumpedJob)
        self.row: DumpedJob | None = self.rows[0] if self.rows else None
        self.attempts: list[AttemptBegan] = self.of(AttemptBegan)
        if len(self.attempts) > 1:
            self.attempts = sorted(self.attempts, key=lambda began: began.fence)
        self.claims: list[ClaimSeen] = self._claims()
        called = by_kind.get(EnqueueCalled)
        self.call: EnqueueCalled | None = cast("EnqueueCalled", called[0].event) if called else call
        """The first enqueue call of the job, with its options; None if no call is known."""

    def of(self, kind: type[E]) -> list[E]:
        """Return the records of one kind."""
        found = self._by_kind.get(kind)
        return cast("list[E]", _NONE if found is None else [entry.event for entry in found])

    def entries_of(self, kind: type[HistoryRecord]) -> list[Entry]:
        """Return the records of one kind, with their processes."""
        return self._by_kind.get(kind, _NONE)

    def has(self, kind: type[HistoryRecord]) -> bool:
        """Return whether there is a record of a kind."""
        return kind in self._by_kind

    def _claims(self) -> list[ClaimSeen]:
        claims: dict[int, ClaimSeen] = {}
        for entry in self.entries_of(Claimed):
            claimed = cast("Claimed", entry.event)
            if claimed.fence not in claims:
                claims[claimed.fence] = ClaimSeen(
                    claimed.fence, claimed.attempt, claimed.sent_us, claimed.at_us, entry.process, True, claimed.direct
                )
        for entry in self.entries_of(AttemptBegan):
            began = cast("AttemptBegan", entry.event)
            known = claims.get(began.fence)
            if known is None:
                claims[began.fence] = ClaimSeen(
                    began.fence, began.attempt, began.at_us, began.at_us, entry.process, False
                )
            elif began.at_us < known.at_us:  # recorded late: the process was frozen between the reply and its record
                claims[began.fence] = known._replace(at_us=began.at_us, sent_us=min(known.sent_us, began.at_us))
        return sorted(claims.values()) if len(claims) > 1 else list(claims.values())

    # --- derived facts ----------------------------------------------------------------------------------------------

    @property
    def is_acknowledged(self) -> bool:
        """Whether an enqueue of the job was acknowledged."""
        return EnqueueAnswered in self._by_kind

    @property
    def is_refused(self) -> bool:
        """Whether every enqueue of the job is known to have failed."""
        called = self._by_kind.get(EnqueueCalled)
        return bool(called) and not self.is_acknowledged and len(self.of(EnqueueRefused)) >= len(called or ())

    @property
    def takes(self) -> Takes | None:
        """Where the effect of the job is written."""
        return None if self.call is None else self.call.takes

    @property
    def effects(self) -> list[EffectRow]:
        """The job's rows in the effect table."""
        return self.of(EffectRow)

    @property
    def is_ended(self) -> bool:
        """Whether the store shows the job in a final state."""
        return self.row is not None and self.row.state in _FINAL

    @property
    def was_sent_back(self) -> bool:
        """Whether an operator requested a retry, so that a final state need not be the last."""
        return RetryCalled in self._by_kind

    @property
    def kept(self) -> dict[int, AttemptRow]:
        """The rows of attempts without completion in the store, by number."""
        return {} if self.row is None else {row.attempt: row for row in self.row.attempts}
