"""Check the history of streams: one pass over the files, then invariant by invariant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

from holdfast.torture.checker.timeline import words
from holdfast.torture.checker.verdict import InvariantResult, RunVerdict
from holdfast.torture.event import HistoryRecord
from holdfast.torture.history import History
from holdfast.torture.streams.checker.appends import NoEventLost, NoPhantomEvent, WholeBatches
from holdfast.torture.streams.checker.effects import EffectsOnce
from holdfast.torture.streams.checker.history import Share, StreamStory
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
    story = StreamStory()
    for process, event in records:
        story.note(process, event)
    story.close()
    tallies: list[InvariantResult] = []
    figures: dict[str, float] = {}
    offended: Share | None = None
    for invariant in invariants:
        check = invariant(story)
        tally = InvariantResult(check.code, check.name, check.forbids)
        for violation in check.check():
            tally.add(violation)
        tally.checked = check.checked
        tallies.append(tally)
        figures |= check.figures
        offended = offended or check.offended
    return RunVerdict(
        tallies=tallies,
        jobs=len(story.by_id),
        records=story.records,
        timeline="" if offended is None else _timeline(story, offended),
        figures=figures,
    )


def _timeline(story: StreamStory, share: Share) -> str:
    """Return the last records of a share in order of time, as text."""
    begin_us = story.run.first_us
    steps = (step for step in story.transitions if step.share == share)
    told: list[HistoryRecord] = [*chain(steps, story.commits.get(share, ()), story.handled.get(share, ()))]
    told.sort(key=lambda event: event.at_us)
    lines = [f"the end of the history of {named(share)}, in seconds since the run began:"]
    lines += [f"  {(event.at_us - begin_us) / 1e6:>11.6f}  {words(event, begin_us)}" for event in told[-_SHOWN:]]
    return "\n".join(lines)
