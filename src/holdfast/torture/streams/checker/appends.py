"""What was appended is there, once, as was answered; what was not is not (I1, I3, I20)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from holdfast.torture.checker.verdict import Violation
from holdfast.torture.streams.checker.invariant import StreamInvariant


class NoEventLost(StreamInvariant):
    """I1 for events."""

    code = "I1"
    name = "no loss"
    forbids = "an acknowledged event that is not there, or lies elsewhere; a hole in a partition or in a stream"

    def check(self) -> Iterator[Violation]:
        """Compare answers with the dump, and look for holes."""
        new: dict[str, int] = defaultdict(int)
        for answer in self.story.answers:
            for place in answer.places:
                self.checked += 1
                row = self.story.by_id.get(place.event)
                told = (place.category, place.partition, place.position, place.version)
                if row is None:
                    yield self.broken(f"event {place.event} was acknowledged and is not there", at_us=answer.at_us)
                elif told != (found := (row.category, row.partition, row.position, row.version)):
                    yield self.broken(f"event {place.event} was said to be at {told} and is at {found}")
                new[place.event] += place.is_new
        for event, times in new.items():
            if times > 1:
                yield self.broken(f"event {event} was new {times} times")
        yield from self._holes()

    def _holes(self) -> Iterator[Violation]:
        for (category, partition), rows in self.story.events.items():
            versions: dict[str, int] = defaultdict(int)
            for number, row in enumerate(rows, 1):
                if row.position != number:
                    yield self.broken(f"{category}:{partition} has no position {number}, but {row.position}")
                    return
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
    forbids = "an event that nobody asked for, or whose every append was refused or rolled back"

    def check(self) -> Iterator[Violation]:
        """Look at every event that is there."""
        hopes: dict[str, int] = defaultdict(int)
        for name, call in self.story.calls.items():
            for event in call.events:
                hopes[event] += name not in self.story.refused
        for event in self.story.by_id:
            self.checked += 1
            if event not in hopes:
                yield self.broken(f"event {event} is there, and nobody has appended it")
            elif not hopes[event]:
                yield self.broken(f"event {event} is there, though it was refused or rolled back")


class WholeBatches(StreamInvariant):
    """I20 for events."""

    code = "I20"
    name = "whole batches"
    forbids = "a part of an append without the rest"

    def check(self) -> Iterator[Violation]:
        """Look at every append of many."""
        for name, call in self.story.calls.items():
            self.checked += 1
            there = sum(event in self.story.by_id for event in call.events)
            if 0 < there < len(call.events):
                yield self.broken(f"of {len(call.events)} events of append {name} {there} are there", at_us=call.at_us)
