"""Check the history of streams: one pass over the files, then invariant by invariant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

from holdfast.torture.checker.timeline import describe
from holdfast.torture.checker.verdict import InvariantResult, RunVerdict
from holdfast.torture.event import HistoryRecord
from holdfast.torture.history import History
from holdfast.torture.streams.checker.appends import NoEventLost, NoPhantomEvent, WholeBatches
from holdfast.torture.streams.checker.effects import EffectsOnce
from holdfast.torture.streams.checker.facts import Share, StreamFacts
from holdfast.torture.streams.checker.hygiene import StreamHygiene
from holdfast.torture.streams.checker.invariant import StreamInvariant, named
from holdfast.torture.streams.checker.leaders import Leaders
from holdfast.torture.streams.checker.owners import OneOwner
from holdfast.torture.streams.checker.positions import Positions

STREAM_INVARIANTS: tuple[type[StreamInvariant], ...] = (
    NoEventLost,
    NoPhantomEvent,
    Positions,
    EffectsOnce,
    OneOwner,
    Leaders,
    WholeBatches,
    StreamHygiene,
)
_SHOWN = 200  # records in the timeline of a share


def check_streams(
    history: History | Path | str, *, invariants: Sequence[type[StreamInvariant]] = STREAM_INVARIANTS
) -> RunVerdict:
    """Check the history in a directory; raises `HistoryDamaged` if it cannot be read."""
    if not isinstance(history, History):
        history = History(history)
    return check_stream_events(history.all(), invariants=invariants)


def check_stream_events(
    records: Iterable[tuple[str, HistoryRecord]], *, invariants: Sequence[type[StreamInvariant]] = STREAM_INVARIANTS
) -> RunVerdict:
    """Check records, each with the name of the process that wrote it."""
    facts = StreamFacts()
    for process, event in records:
        facts.note(process, event)
    facts.close()
    tallies: list[InvariantResult] = []
    figures: dict[str, float] = {}
    offended: Share | None = None
    for invariant in invariants:
        check = invariant(facts)
        tally = InvariantResult(check.code, check.name, check.forbids)
        for violation in check.check():
            tally.add(violation)
        tally.checked = check.checked
        tallies.append(tally)
        figures |= check.figures
        offended = offended or check.offended
    return RunVerdict(
        tallies=tallies,
        jobs=len(facts.by_id),
        records=facts.records,
        timeline="" if offended is None else _timeline(facts, offended),
        figures=figures,
    )


def _timeline(facts: StreamFacts, share: Share) -> str:
    """Return the last records of a share in order of time, as text."""
    begin_us = facts.run.first_us
    steps = (step for step in facts.transitions if step.share == share)
    records: list[HistoryRecord] = [*chain(steps, facts.commits.get(share, ()), facts.handled.get(share, ()))]
    records.sort(key=lambda event: event.at_us)
    lines = [f"the end of the history of {named(share)}, in seconds since the run began:"]
    lines += [f"  {(event.at_us - begin_us) / 1e6:>11.6f}  {describe(event, begin_us)}" for event in records[-_SHOWN:]]
    return "\n".join(lines)
