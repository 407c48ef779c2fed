"""Acknowledged events exist once, at the acknowledged place; failed appends left none (I1, I3, I20)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from holdfast.torture.checker.verdict import Violation
from holdfast.torture.streams.checker.invariant import StreamInvariant


class NoEventLost(StreamInvariant):
    """I1 for events."""

    code = "I1"
    name = "no loss"
    forbids = (
        "an acknowledged event that does not exist, is elsewhere, or is before an earlier one of its producer; a gap "
        "in a partition or a stream"
    )

    def check(self) -> Iterator[Violation]:
        """Compare replies with the dump, and check for gaps."""
        new: dict[str, int] = defaultdict(int)
        for answer in self.facts.answers:
            for place in answer.places:
                self.checked += 1
                row = self.facts.by_id.get(place.event)
                acknowledged = (place.category, place.partition, place.position, place.version)
                if row is None:
                    yield self.broken(f"event {place.event} was acknowledged but does not exist", at_us=answer.at_us)
                elif acknowledged != (found := (row.category, row.partition, row.position, row.version)):
                    yield self.broken(f"event {place.event} was acknowledged at {acknowledged} but is at {found}")
                new[place.event] += place.is_new
        for event, times in new.items():
            if times > 1:
                yield self.broken(f"event {event} was acknowledged as new {times} times")
        yield from self._disorder()
        yield from self._holes()

    def _disorder(self) -> Iterator[Violation]:
        """A producer appends one call after the other: within a partition, what it appends later is further on."""
        last: dict[tuple[str, str, int], int] = {}
        for answer in sorted(self.facts.answers, key=lambda answer: answer.at_us):
            producer = answer.call.rpartition("-")[0]
            for place in answer.places:
                key = producer, place.category, place.partition
                if place.is_new and place.position <= last.get(key, 0):
                    yield self.broken(f"event {place.event} of {answer.call} is before an earlier one of its producer")
                if place.is_new:
                    last[key] = place.position

    def _holes(self) -> Iterator[Violation]:
        for (category, partition), rows in self.facts.events.items():
            versions: dict[str, int] = defaultdict(int)
            for number, row in enumerate(rows, 1):
                if row.position != number:
                    yield self.broken(f"{category}:{partition} has no position {number}, but {row.position}")
                    return
                if self.facts.run.settings.has_gaps:  # and no versions
                    continue
                versions[row.stream] += 1
                if row.version != versions[row.stream]:
                    yield self.broken(
                        f"{category}:{partition} has version {row.version} of stream {row.stream} at position {number}"
                        f", where {versions[row.stream]} was due"
                    )
                    return


class NoPhantomEvent(StreamInvariant):
    """I3 for events."""

    code = "I3"
    name = "no phantom"
    forbids = "an event that was never appended, or whose every append was refused or rolled back"

    def check(self) -> Iterator[Violation]:
        """Check every event that exists."""
        hopes: dict[str, int] = defaultdict(int)
        for name, call in self.facts.calls.items():
            for event in call.events:
                hopes[event] += name not in self.facts.refused
        for event in self.facts.by_id:
            self.checked += 1
            if event not in hopes:
                yield self.broken(f"event {event} exists although it was never appended")
            elif not hopes[event]:
                yield self.broken(f"event {event} exists although it was refused or rolled back")


class WholeBatches(StreamInvariant):
    """I20 for events."""

    code = "I20"
    name = "whole batches"
    forbids = "part of an append without the rest"

    def check(self) -> Iterator[Violation]:
        """Check every append of several events."""
        for name, call in self.facts.calls.items():
            self.checked += 1
            there = sum(event in self.facts.by_id for event in call.events)
            if 0 < there < len(call.events):
                yield self.broken(f"of {len(call.events)} events of append {name} {there} exist", at_us=call.at_us)
