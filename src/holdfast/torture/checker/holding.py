"""How long a claim certainly held its job: what the holder was promised, and when it may have ended the lease."""

from __future__ import annotations

from holdfast.torture.checker.job import JobHistory
from holdfast.torture.events import (
    AttemptEnded,
    Claimed,
    EffectBegan,
    EffectCommitted,
    EffectUnknown,
    ExtendAnswered,
    Extended,
    Finished,
    Released,
    ResetAnswered,
    ResetCalled,
)

_OPEN = 2**63 - 1
MAY_BE_DONE = frozenset({"done", "unknown"})


def promised_leases(job: JobHistory) -> dict[int, list[tuple[int, int]]]:
    """Return the promises to the holder of each fence: when sent, and until when the lease then lasts at least."""
    found: dict[int, list[tuple[int, int]]] = {}
    for claimed in job.of(Claimed):
        found.setdefault(claimed.fence, []).append((claimed.sent_us, claimed.sent_us + claimed.lease_us))
    extends: list[Extended | ExtendAnswered] = [*job.of(Extended), *job.of(ExtendAnswered)]
    for extended in extends:
        if extended.verdict == "done":
            found.setdefault(extended.fence, []).append((extended.sent_us, extended.sent_us + extended.lease_us))
    return found


def operator_resets(job: JobHistory) -> list[tuple[int, int]]:
    """Return when operators sent resets of the lease, and by when each took effect, unless it certainly did not.

    Without a reply a reset may take effect at any time.
    """
    answers = {answer.sent_us: answer for answer in job.of(ResetAnswered)}
    found: list[tuple[int, int]] = []
    for called in job.of(ResetCalled):
        answer = answers.get(called.at_us)
        if answer is None or answer.answer is None:
            found.append((called.at_us, _OPEN))
        elif answer.answer:
            found.append((called.at_us, answer.at_us))
    return found


def may_have_ended_at(job: JobHistory) -> dict[int, int]:
    """Return, per fence, from when on the holder may have ended its lease by itself.

    A write that the store rejected, or certainly did not receive, ended nothing. If no end of an attempt is known to
    have been sent, the end of its handler counts.
    """
    ended: dict[int, int] = {}
    with_outcome: set[int] = set()

    def note(fence: int, at_us: int) -> None:
        ended[fence] = min(ended.get(fence, at_us), at_us)

    writes: list[Finished | Released] = [*job.of(Finished), *job.of(Released)]
    for write in writes:
        with_outcome.add(write.fence)
        if write.verdict in MAY_BE_DONE:
            note(write.fence, write.sent_us)
    for committed in job.of(EffectCommitted):
        note(committed.fence, committed.sent_us)
    unknown = {effect.fence for effect in job.of(EffectUnknown)}
    for effect in job.of(EffectBegan):
        if effect.fence in unknown:
            note(effect.fence, effect.at_us)
    for attempt in job.of(AttemptEnded):
        if attempt.fence not in with_outcome:
            note(attempt.fence, attempt.at_us)
    return ended
