"""Every event has its effect once, in order, together with the position (I16)."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.torture.checker.verdict import Violation
from holdfast.torture.streams.checker.facts import Share
from holdfast.torture.streams.checker.invariant import StreamInvariant
from holdfast.torture.streams.checker.losses import FAILED_AFTER, most_losses
from holdfast.torture.streams.names import ATOMIC, PARK, PLAIN, POISON
from holdfast.torture.streams.records import DumpedEvent

_LOST = "NodeLost"  # the failure recorded for an event that seems to kill its nodes


class EffectsOnce(StreamInvariant):
    """I16."""

    code = "I16"
    name = "stream effects"
    forbids = "an event without effect below the position, one with two, or out of order; an effect without position"

    def check(self) -> Iterator[Violation]:
        """Check all shares."""
        self.figures["parked events"] = sum(map(len, self.facts.parked.values()))
        self.figures["events parked for lost nodes"] = 0
        self.figures["repeated handlings"] = 0
        for share, row in self.facts.shares.items():
            events = self.facts.events.get(share[1:], [])
            if row.position != len(events):
                yield self.broken(f"its position is {row.position}, but there are {len(events)} events", share=share)
            match share[0]:
                case consumer if consumer in ATOMIC:
                    yield from self._atomic(share, row.position)
                case consumer if consumer == PLAIN:
                    yield from self._plain(share, row.position, events)
                case consumer if consumer == PARK:
                    yield from self._parking(share, row.position, events)
                case _:
                    yield self.broken("unknown consumer", share=share)
        yield from self._snapshots()

    def _atomic(self, share: Share, position: int) -> Iterator[Violation]:
        """The effects are those of the positions 1 to the committed one, each once, in this order."""
        effects = self.facts.effects.get(share, [])
        self.checked += len(effects)
        due = 1
        for effect in effects:
            if effect.position != due:
                what = "took effect again" if effect.position < due else f"took effect where {due} was due"
                yield self.broken(
                    f"position {effect.position} {what} (by {effect.node}, generation {effect.generation})", share=share
                )
            due = max(due, effect.position + 1)
            yield from self._fits(share, effect.position, effect.event)
        if due != position + 1:
            yield self.broken(f"the effects end at {due - 1}, but the position is {position}", share=share)

    def _plain(self, share: Share, position: int, events: list[DumpedEvent]) -> Iterator[Violation]:
        """Each event was handled at least once, and for the first time after the one before it."""
        due = 1
        for handled in self.facts.handled.get(share, []):
            self.checked += 1
            if handled.position > due:
                yield self.broken(
                    f"position {handled.position} was handled where {due} was due (by {handled.node}, generation "
                    f"{handled.generation})",
                    share=share,
                    at_us=handled.at_us,
                )
            self.figures["repeated handlings"] += handled.position < due
            due = max(due, handled.position + 1)
            yield from self._fits(share, handled.position, handled.event)
        if due <= position and events:
            yield self.broken(f"the position is {position}, but only {due - 1} events were handled", share=share)

    def _parking(self, share: Share, position: int, events: list[DumpedEvent]) -> Iterator[Violation]:
        """Of each stream the first failing event and all later ones are parked; all others have effects, in order."""
        took: set[int] = set()
        last = 0
        for effect in self.facts.effects.get(share, []):
            self.checked += 1
            if effect.position <= last:
                yield self.broken(f"position {effect.position} took effect after {last}", share=share)
            took.add(effect.position)
            last = max(last, effect.position)
            yield from self._fits(share, effect.position, effect.event)
        parked = {row.position: row.failure for row in self.facts.parked.get(share, [])}
        shut: set[str] = set()
        for event in events[:position]:
            failure = parked.pop(event.position, None)
            was_shut = event.stream in shut
            is_blamed = failure is not None and failure.endswith(_LOST)
            if event.name == POISON or is_blamed:
                shut.add(event.stream)
            what = _wrongly_parked(failure, fails=event.stream in shut and not was_shut, waits=was_shut)
            if what is None and is_blamed:
                what = self._wrongly_blamed(share, event.position)
            if what is None and (event.stream in shut) == (event.position in took):
                what = "took effect although it is parked" if event.position in took else "took no effect"
            if what is not None:
                yield self.broken(f"position {event.position} {what}", share=share)
        for stray in parked:
            yield self.broken(f"position {stray} is parked, past the position", share=share)

    def _wrongly_blamed(self, share: Share, position: int) -> str | None:
        """Return the violation if an event was parked for lost nodes without enough losses, else None."""
        self.figures["events parked for lost nodes"] += 1
        losses = most_losses(self.facts, share, position)
        if losses >= FAILED_AFTER:
            return None
        return f"is parked for lost nodes, and its share was lost {losses} times in a row at most ({_LOST})"

    def _fits(self, share: Share, position: int, event: str) -> Iterator[Violation]:
        events = self.facts.events.get(share[1:], [])
        if not 0 < position <= len(events) or events[position - 1].event != event:
            yield self.broken(f"position {position} was recorded for event {event}, which is elsewhere", share=share)

    def _snapshots(self) -> Iterator[Violation]:
        """At any time the last effect is that of the position."""
        for snapshot in self.facts.snapshots:
            for seen in snapshot.shares:
                if seen.consumer in ATOMIC and seen.effect != seen.position:
                    self.checked += 1
                    yield self.broken(
                        f"its position was {seen.position} while its effects ended at {seen.effect}",
                        share=seen.share,
                        at_us=snapshot.at_us,
                    )


def _wrongly_parked(failure: str | None, *, fails: bool, waits: bool) -> str | None:
    """Return the violation in how an event is parked (None: it is not, empty: it waits), None if there is none."""
    if fails and not failure:
        return "fails permanently, but is not parked as failed"
    if waits and failure is None:
        return "is not parked behind the others of its stream"
    if waits and failure:
        return "was handled although its stream is parked"
    if failure is not None and not fails and not waits:
        return f"is parked without a reason ({failure})"
    return None
