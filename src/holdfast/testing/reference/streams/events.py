"""Events: append, read, trim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

from holdfast.errors import ConfigError, VersionConflict
from holdfast.model.event import DEFAULT_PARTITIONS, Appended, NewEvent, StoredEvent, partition_of
from holdfast.model.instants import span_micros, to_micros
from holdfast.testing.reference.streams.records import Partition, ReferenceCategory, StreamState


class Events(StreamState):
    """The verbs of `EventStore`."""

    def open_category(self, name: str, partitions: int | None = None) -> ReferenceCategory:
        """Return the category; create it if it does not exist."""
        category = self.categories.get(name)
        if category is None:
            count = DEFAULT_PARTITIONS if partitions is None else partitions
            category = self.categories[name] = ReferenceCategory(name, [Partition() for _ in range(count)])
        if partitions not in {None, len(category.partitions)}:
            raise ConfigError(f"category {name} has {len(category.partitions)} partitions, not {partitions}")
        return category

    def append(self, events: Sequence[NewEvent]) -> list[Appended]:
        """Append events, all or none."""
        seen: set[str] = set()
        ahead: Counter[tuple[str, str]] = Counter()
        for event in events:
            if event.id in self.known or event.id in seen:
                continue
            event.payload.encode()  # before the first write: a payload may not be encodable
            seen.add(event.id)
            actual = self.stream_version(event.category, event.stream) + ahead[event.category, event.stream]
            ahead[event.category, event.stream] += 1
            if event.expected_version not in {None, actual}:
                assert event.expected_version is not None
                raise VersionConflict(event.category, event.stream, expected=event.expected_version, actual=actual)
        return [self._append(event) for event in events]

    def _append(self, new: NewEvent) -> Appended:
        is_new = new.id not in self.known
        event = self._write(new) if is_new else self.known[new.id]
        return Appended(
            id=event.id,
            version=event.version,
            partition_id=event.partition_id,
            position=event.position,
            is_new=is_new,
        )

    def _write(self, new: NewEvent) -> StoredEvent:
        category = self.open_category(new.category)
        partition_id = partition_of(new.stream, len(category.partitions))
        partition = category.partitions[partition_id]
        partition.head += 1
        partition.recorded_us = max(partition.recorded_us, self.now)
        category.versions[new.stream] = category.versions.get(new.stream, 0) + 1
        event = StoredEvent(
            id=new.id,
            category=new.category,
            stream=new.stream,
            name=new.name,
            version=category.versions[new.stream],
            partition_id=partition_id,
            position=partition.head,
            payload=new.payload,
            headers=new.headers,
            recorded_us=partition.recorded_us,
        )
        partition.events.append(event)
        self.known[new.id] = event
        return event

    def read(self, category: str, partition_id: int, *, after: int, limit: int) -> list[StoredEvent]:
        """Return the next events of a partition."""
        partitions = self.category(category).partitions
        if partition_id not in range(len(partitions)):
            return []
        return [event for event in partitions[partition_id].events if event.position > after][:limit]

    def read_stream(
        self, category: str, stream: str, *, after: int | None, limit: int, backwards: bool
    ) -> list[StoredEvent]:
        """Return the next or, backwards, the previous events of a stream."""
        if category not in self.categories:
            return []
        events = [
            event
            for partition in self.categories[category].partitions
            for event in partition.events
            if event.stream == stream
        ]
        if backwards:
            return [event for event in reversed(events) if after is None or event.version < after][:limit]
        return [event for event in events if after is None or event.version > after][:limit]

    def stream_version(self, category: str, stream: str) -> int:
        """Return the version of a stream, 0 if it does not exist."""
        found = self.categories.get(category)
        return 0 if found is None else found.versions.get(stream, 0)

    def position_at(self, category: str, partition_id: int, at: datetime) -> int:
        """Return the position just before the first event recorded at or after an instant."""
        partition = self.category(category).partitions[partition_id]
        later = [event.position for event in partition.events if event.recorded_us >= to_micros(at)]
        return later[0] - 1 if later else partition.head

    def trim(self, category: str, *, older_than: timedelta, limit: int, past_unread: bool) -> int:
        """Delete old events from the beginning of each partition."""
        before = self.now - span_micros(older_than)
        count = 0
        for partition_id, partition in enumerate(self.category(category).partitions):
            needed = None if past_unread else self._first_needed(category, partition_id)
            while partition.events and count < limit:
                first = partition.events[0]
                if first.recorded_us >= before or (needed is not None and first.position >= needed):
                    break
                self._delete(partition)
                count += 1
        return count

    def _first_needed(self, category: str, partition_id: int) -> int | None:
        """Return the first position of a partition that a consumer has not passed, or has parked."""
        needed: list[int] = []
        for share in self.expected_shares():
            if (share.category, share.partition_id) != (category, partition_id):
                continue
            row = self.rows.get(share)
            needed += [event.position for event in self.unread(share, 0 if row is None else row.position)]
            needed += [parked.event.position for parked in self.parked.get(share, {}).values()]
        return min(needed, default=None)

    def _delete(self, partition: Partition) -> None:
        event = partition.events.pop(0)
        partition.trimmed = event.position
        del self.known[event.id]
        for share, parked in self.parked.items():
            self.parked[share] = {place: each for place, each in parked.items() if each.event != event}
