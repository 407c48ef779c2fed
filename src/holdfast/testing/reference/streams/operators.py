"""Operator actions on consumers."""

from __future__ import annotations

from dataclasses import replace

from holdfast.errors import ConfigError
from holdfast.store.stream_values import Start
from holdfast.testing.reference.streams.consumption import ReferenceConsumption
from holdfast.testing.reference.streams.records import ReferenceShare


class Operators(ReferenceConsumption):
    """Pause, resume, reset and forget consumers; retry and drop parked events."""

    def pause(self, consumer: str) -> bool:
        """Pause a consumer; False if it was paused already."""
        record = self.consumer(consumer)
        was, record.paused = record.paused, True
        return not was

    def resume(self, consumer: str) -> bool:
        """Resume a consumer; False if it was not paused."""
        record = self.consumer(consumer)
        was, record.paused = record.paused, False
        return was

    def reset(self, consumer: str, to: Start) -> bool:
        """Set the positions of a paused consumer; False while a live node owns a share."""
        rows = self._resettable_rows(consumer)
        if rows is None:
            return False
        for row in rows:
            self.free_share(row)
            row.target = None
            row.losses = 0
            row.position = self.start_of(row.share, to)
            row.replay_until = self.head(row.share)
            parked = self.parked_of(row.share)
            self.parked[row.share] = {place: each for place, each in parked.items() if place <= row.position}
        return True

    def forget(self, consumer: str) -> bool:
        """Delete a paused consumer; False while a live node owns a share."""
        rows = self._resettable_rows(consumer)
        if rows is None:
            return False
        del self.consumers[consumer]
        for row in rows:
            # One larger, as after a seizure: a node that still holds the grant must stay stale.
            self.floors[consumer] = max(self.floors.get(consumer, 0), row.generation + 1)
            del self.rows[row.share]
            self.parked.pop(row.share, None)
        return True

    def _resettable_rows(self, consumer: str) -> list[ReferenceShare] | None:
        """Return the shares of a paused consumer, None if a live node owns one."""
        if not self.consumer(consumer).paused:
            raise ConfigError(f"consumer {consumer} is not paused")
        rows = [row for row in self.rows.values() if row.share.consumer == consumer]
        held = any(row.owner is not None and self.is_live(row.owner) for row in rows)
        return None if held else rows

    def retry_parked(self, consumer: str, stream: str | None = None) -> int:
        """Request a retry of parked events; return how many there are."""
        self.consumer(consumer)
        count = 0
        for share, parked in self.parked.items():
            for position, each in parked.items():
                if share.consumer == consumer and stream in (None, each.event.stream):
                    parked[position] = replace(each, is_retrying=True)
                    count += 1
        return count

    def drop_parked(self, consumer: str, *, stream: str | None = None, event_id: str | None = None) -> int:
        """Delete parked events; return how many."""
        self.consumer(consumer)
        doomed = [
            (share, position)
            for share, parked in self.parked.items()
            for position, each in parked.items()
            if share.consumer == consumer and stream in (None, each.event.stream) and event_id in (None, each.event.id)
        ]
        for share, position in doomed:
            del self.parked[share][position]
        return len(doomed)
