"""The life of a position: subscribe, then fetch, commit and release under a grant."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from holdfast.errors import ConfigError
from holdfast.model.allocation import Grant, Share, ShareState
from holdfast.model.event import StoredEvent
from holdfast.model.instants import to_micros
from holdfast.store.stream_values import (
    Commit,
    CommitVerdict,
    Fetched,
    Park,
    ParkedEvent,
    Start,
    StartAt,
    Subscription,
    Unpark,
)
from holdfast.testing.reference.streams.events import Events
from holdfast.testing.reference.streams.records import ConsumerRecord, Parked, ReferenceShare


class ReferenceConsumption(Events):
    """The verbs of a consumer."""

    def subscribe(self, consumer: str, subscription: Subscription, start: Start) -> bool:
        """Create a consumer; True if it is new."""
        known = self.consumers.get(consumer)
        if known is not None:
            if known.subscription != subscription:
                raise ConfigError(f"consumer {consumer} reads {known.subscription}, not {subscription}")
            return False
        self.consumers[consumer] = ConsumerRecord(subscription)
        for share in self.expected_shares():
            if share.consumer == consumer:
                self.create_share(share, self.start_of(share, start))
        return True

    def create_share(self, share: Share, position: int) -> None:
        """Create a free share."""
        generation = self.floors.get(share.consumer, 0)
        self.rows[share] = ReferenceShare(share, position=position, generation=generation, since_us=self.now)

    def start_of(self, share: Share, start: Start) -> int:
        """Return the position at which `start` begins in a share."""
        match start:
            case StartAt.BEGINNING:
                return 0
            case StartAt.END:
                return self.head(share)
            case datetime():
                return self.position_of(share, start)
            case _:
                return min(start, self.head(share))

    def position_of(self, share: Share, at: datetime) -> int:
        """Return the position of a share just before its first event recorded at or after an instant."""
        later = [event for event in self.readable(share) if event.recorded_us >= to_micros(at)]
        return self.place(share, later[0]) - 1 if later else self.head(share)

    def fetch(self, grant: Grant, *, after: int, limit: int, max_bytes: int) -> Fetched:
        """Return the next events after a position, and the status of the grant."""
        row = self.live(grant)
        if row is None:
            return Fetched(events=[], is_lost=True)
        parked = self.parked_of(grant.share)
        retries = [ParkedEvent(each.event, each.attempts) for each in parked.values() if each.is_retrying]
        events = self._up_to(self.unread(grant.share, after)[:limit], max_bytes)
        return Fetched(
            events=events,
            state=row.state,
            position=row.position,
            head=self.head(grant.share),
            replay_until=row.replay_until,
            losses=row.losses,
            parked_streams=frozenset(each.event.stream for each in parked.values()) & {each.stream for each in events},
            retries=tuple(retries[:limit]),
        )

    @staticmethod
    def _up_to(events: list[StoredEvent], max_bytes: int) -> list[StoredEvent]:
        """Return the leading events whose payloads fit, but at least the first."""
        size = 0
        for count, event in enumerate(events):
            size += len(event.payload.encode())
            if count and size > max_bytes:
                return events[:count]
        return events

    def parked_of(self, share: Share) -> dict[int, Parked]:
        """Return the parked events of a share by position, in order."""
        return dict(sorted(self.parked.get(share, {}).items()))

    def commit(self, grant: Grant, commit: Commit) -> CommitVerdict:
        """Advance the position; park and unpark events."""
        row = self.live(grant)
        if row is None or row.position not in {commit.after, commit.position}:
            return CommitVerdict.LOST
        if row.position != commit.after:
            return CommitVerdict.DONE  # a repeat of a written commit
        parked = self.parked_of(grant.share)
        for unpark in commit.unparks:
            _unpark(parked, unpark)
        for park in commit.parks:
            if park.failure is None and not _of_stream(parked, park.stream):
                return CommitVerdict.UNPARKED
            self._park(grant.share, parked, park)
        self.parked[grant.share] = parked
        row.position = commit.position
        if commit.clears_losses:
            row.losses = 0
        row.is_on_trial = commit.begins_trial
        return CommitVerdict.DONE

    def _park(self, share: Share, parked: dict[int, Parked], park: Park) -> None:
        """Park an event; one that waits behind others is retried when they are."""
        (event,) = [event for event in self.readable(share) if self.place(share, event) == park.position]
        before = _of_stream(parked, park.stream)
        parked[park.position] = Parked(
            event=event,
            failure=park.failure,
            attempts=park.attempts,
            is_retrying=park.failure is None and parked[max(before)].is_retrying,
            parked_us=self.now,
        )

    def verify(self, grant: Grant) -> int | None:
        """Return the committed position of a live grant."""
        row = self.live(grant)
        return None if row is None else row.position

    def release(self, grant: Grant) -> bool:
        """Release a share; False if the grant was stale."""
        row = self.live(grant)
        if row is None:
            return False
        self.step(row, ShareState.FREE, node=row.owner)
        return True


def _of_stream(parked: dict[int, Parked], stream: str) -> list[int]:
    return [position for position, each in parked.items() if each.event.stream == stream]


def _unpark(parked: dict[int, Parked], unpark: Unpark) -> None:
    found = parked.get(unpark.position)
    if found is None:
        return
    if unpark.failure is None:
        del parked[unpark.position]
        return
    if not found.is_retrying:
        return
    for position in _of_stream(parked, found.event.stream):
        if position >= unpark.position:
            parked[position] = replace(parked[position], is_retrying=False)
    parked[unpark.position] = replace(
        parked[unpark.position], failure=unpark.failure, attempts=found.attempts + unpark.attempts
    )
