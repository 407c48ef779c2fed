"""The rules of consumers and people, and what must hold after every step.

The invariants are those of the protocol: epochs and generations only grow (I1, I2), a write under a stale handle
changes nothing (I3, by comparison with the model), no share goes from owner to owner (I4), and within a partition
positions have no holes and an event, once seen, stays where it is (I7).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from tests.stateful.streams_rules import ALL, STREAMS, SUBSCRIPTIONS, Pair, StreamsRules, seconds, starts

from holdfast.model.allocation import Grant, Share, ShareState
from holdfast.model.outcome import Failure
from holdfast.store.stream_values import Commit, Fetched, Park, Start, StartAt, Transition, Unpark

FAILURE = Failure(error_class="ValueError", message="no", traceback="Traceback …", signature="5e1f")

some_consumers = st.sampled_from(sorted(SUBSCRIPTIONS))
some_streams = st.none() | st.sampled_from(STREAMS)
fates = st.sampled_from(["failed", "done", "waits"])


class StreamsMachine(StreamsRules):
    """All rules together, and the invariants."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: dict[tuple[str, int, int], str] = {}
        self.generations: dict[Share, Pair[int]] = {}
        self.reborn: set[Share] = set()
        self.epoch = 0

    # -- what consumers do

    def grant(self, data: st.DataObject) -> Pair[Grant]:
        return self.draw(data, self.grants, lambda pair: self.model.live(pair.model) is not None)

    @rule(consumer=some_consumers, start=starts, ago=st.none() | seconds)
    def subscribe(self, consumer: str, start: Start, ago: timedelta | None) -> None:
        begin = start if ago is None else self.clock.now - ago
        self.both(lambda streams: streams.consumers.subscribe(consumer, SUBSCRIPTIONS[consumer], begin))

        if consumer in self.model.consumers:
            other = SUBSCRIPTIONS["audit" if consumer != "audit" else "one"]
            self.both(lambda streams: streams.consumers.subscribe(consumer, other, StartAt.END))

    @precondition(lambda self: self.grants)
    @rule(data=st.data(), after=st.integers(0, 4), limit=st.integers(1, 3), max_bytes=st.sampled_from([1, 20, 9999]))
    def fetch(self, data: st.DataObject, after: int, limit: int, max_bytes: int) -> None:
        grant = self.grant(data)
        real, model = (
            self.run(streams.consumers.fetch(each, after=after, limit=limit, max_bytes=max_bytes))
            for streams, each in zip((self.store.streams, self.mirror), grant, strict=True)
        )
        assert told(real) == told(model)

    @precondition(lambda self: self.grants)
    @rule(data=st.data(), is_right=st.sampled_from([True, True, True, False]), is_repeated=st.booleans())
    def commit(self, data: st.DataObject, is_right: bool, is_repeated: bool) -> None:
        self._commit(data, self.grant(data), is_right=is_right, is_repeated=is_repeated)

    @rule(data=st.data())
    def work(self, data: st.DataObject) -> None:
        """Let every owner go on, and a person ask for what is parked."""
        for consumer in self.model.consumers:
            self.both(partial(_retry, consumer))
        for grant in [each for each in self.grants if self.model.live(each.model)]:
            self._commit(data, grant, is_right=True, is_repeated=False)

    def _commit(self, data: st.DataObject, grant: Pair[Grant], *, is_right: bool, is_repeated: bool) -> None:
        row = self.model.rows.get(grant.model.share)
        after = row.position if row and is_right else data.draw(st.integers(0, 5), label="after")
        step = self._draw_step(data, grant.model.share, after)
        for _ in range(1 + is_repeated):
            real = self.run(self.store.streams.consumers.commit(grant.real, step))
            assert real is self.model.commit(grant.model, step)

    def _draw_step(self, data: st.DataObject, share: Share, after: int) -> Commit:
        if share not in self.model.rows:
            return Commit(after, after + 1)
        events = self.model.unread(share, after)[: data.draw(st.sampled_from([2, 1, 3, 0]), label="length")]
        parks: list[Park] = []
        for event in events:
            fate = data.draw(fates, label="fate")
            if fate != "done":
                failure = FAILURE if fate == "failed" else None
                parks.append(Park(self.model.place(share, event), event.stream, failure, 3 if failure else 0))
        unparks: list[Unpark] = []
        waiting: set[str] = set()  # parked events of a stream are handled in order, up to the first that fails
        for place, parked in self.model.parked_of(share).items():
            fate = data.draw(st.sampled_from(["done", "failed", "left"]), label="retry")
            if parked.event.stream not in waiting and fate != "left":
                unparks.append(Unpark(place) if fate == "done" else Unpark(place, FAILURE, attempts=2))
            if fate != "done":
                waiting.add(parked.event.stream)
        position = self.model.place(share, events[-1]) if events else after
        return Commit(after, position, tuple(parks), tuple(unparks), data.draw(st.booleans(), label="begins_trial"))

    @precondition(lambda self: self.grants)
    @rule(data=st.data())
    def verify(self, data: st.DataObject) -> None:
        grant = self.grant(data)
        assert self.run(self.store.streams.consumers.verify(grant.real)) == self.model.verify(grant.model)

    @precondition(lambda self: self.grants)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self._release(self.grant(data))

    def _release(self, grant: Pair[Grant]) -> None:
        assert self.run(self.store.streams.consumers.release(grant.real)) == self.model.release(grant.model)

    # -- what people do

    @rule(consumer=some_consumers, verb=st.sampled_from(["pause", "resume", "resume", "forget"]))
    def by_a_persons_word(self, consumer: str, verb: str) -> None:
        self.both(lambda streams: getattr(streams.consumers, verb)(consumer))
        if consumer not in self.model.consumers:
            self.reborn |= {share for share in self.generations if share.consumer == consumer}

    @rule(data=st.data(), consumer=some_consumers, to=starts, ago=st.none() | seconds, is_patient=st.booleans())
    def reset(self, data: st.DataObject, consumer: str, to: Start, ago: timedelta | None, is_patient: bool) -> None:
        """Reset a consumer as a person does who pauses it and waits until all is free, or does neither."""
        begin = to if ago is None else self.clock.now - ago
        if is_patient and consumer in self.model.consumers:
            self.both(lambda streams: streams.consumers.pause(consumer))
            for grant in [each for each in self.grants if each.model.share.consumer == consumer]:
                self._release(grant)
        if is_patient and data.draw(st.sampled_from([False, False, True]), label="forget"):
            self.by_a_persons_word(consumer, "forget")
            self.subscribe(consumer, to, ago)
        self.both(lambda streams: streams.consumers.reset(consumer, begin))
        if data.draw(st.booleans(), label="resume"):
            self.both(lambda streams: streams.consumers.resume(consumer))

    @rule(consumer=some_consumers, stream=some_streams)
    def retry_parked(self, consumer: str, stream: str | None) -> None:
        self.both(lambda streams: streams.consumers.retry_parked(consumer, stream))

    @rule(data=st.data(), consumer=some_consumers, stream=some_streams, is_one=st.booleans())
    def drop_parked(self, data: st.DataObject, consumer: str, stream: str | None, is_one: bool) -> None:
        ids = [event.id for event in self.events]
        event_id = data.draw(st.sampled_from(ids), label="event") if ids and is_one else None
        self.both(lambda streams: streams.consumers.drop_parked(consumer, stream=stream, event_id=event_id))

    # -- after every step

    @invariant()
    def consumers_and_allocations_agree(self) -> None:
        if not hasattr(self, "store"):
            return
        for look in (_consumers, _survey):
            real, model = self.pair(look)
            assert real == model
        for consumer in self.model.consumers:
            self.both(partial(_parked, consumer))

    @invariant()
    def events_agree_and_stay_where_they_are(self) -> None:
        if not hasattr(self, "store"):
            return
        for view in self.both(lambda streams: streams.events.categories()):
            for partition_id in range(view.partitions):
                events = self.both(partial(_read, view.name, partition_id))
                positions = [event.position for event in events]
                assert positions == list(range(view.trimmed[partition_id] + 1, view.heads[partition_id] + 1))
                for event in events:
                    place = (event.category, partition_id, event.position)
                    assert self.ids.setdefault(place, event.id) == event.id

    @invariant()
    def epochs_and_generations_only_grow(self) -> None:
        if not hasattr(self, "store"):
            return
        real, model = self.pair(lambda streams: streams.allocations.leader())
        assert (real is None) == (model is None)
        if real is not None:
            assert (real.leadership.node, real.expires_in) == (model.leadership.node, model.expires_in)
            assert real.leadership.epoch >= self.epoch
            self.epoch = real.leadership.epoch
        for share, generation, _ in self._survey():
            before = self.generations.setdefault(share, generation)
            assert generation.real >= before.real
            if share not in self.reborn:  # a new life may go on with the last generation: it is free again
                assert (generation.real > before.real) == (generation.model > before.model)
            self.generations[share] = generation
        self.reborn = {share for share in self.reborn if share not in self.model.rows}

    @invariant()
    def no_share_goes_from_owner_to_owner(self) -> None:
        if not hasattr(self, "store"):
            return
        real, model = self.pair(lambda streams: streams.allocations.transitions(limit=ALL))
        mine, other = by_share(real), by_share(model)
        assert {share: list(map(noted, steps)) for share, steps in mine.items()} == {
            share: list(map(noted, steps)) for share, steps in other.items()
        }
        for steps in mine.values():
            for before, step in pairwise(steps):
                assert step.generation >= before.generation
            for step in steps:
                assert step.new_state is not ShareState.GRANTED or step.old_state is ShareState.FREE


async def _parked(consumer: str, streams: Any) -> Any:
    """Return what a consumer has parked."""
    return await streams.consumers.parked(consumer, limit=ALL)


async def _retry(consumer: str, streams: Any) -> Any:
    """Ask that what is parked be handled again."""
    return await streams.consumers.retry_parked(consumer)


async def _read(category: str, partition_id: int, streams: Any) -> Any:
    """Return what a partition holds."""
    return await streams.events.read(category, partition_id, after=0, limit=ALL)


async def _consumers(streams: Any) -> list[Any]:
    """Return what people see of consumers, but for generations."""
    views = await streams.consumers.consumers()
    return [
        msgspec.structs.replace(
            view, shares=tuple(msgspec.structs.replace(share, generation=0) for share in view.shares)
        )
        for view in views
    ]


async def _survey(streams: Any) -> tuple[Any, ...]:
    """Return what the allocator sees, but for generations, and the nodes."""
    survey = await streams.allocations.survey()
    shares = tuple(msgspec.structs.replace(each, generation=0) for each in survey.shares)
    return msgspec.structs.replace(survey, shares=shares), await streams.allocations.nodes()


def told(fetched: Fetched) -> Fetched | None:
    """Return what a fetch tells; of a lost grant, that it is lost."""
    assert not (fetched.is_lost and (fetched.events or fetched.retries))
    return None if fetched.is_lost else fetched


def by_share(transitions: Sequence[Transition]) -> dict[Share, list[Transition]]:
    """Return transitions by share, oldest first."""
    found: dict[Share, list[Transition]] = {}
    for transition in reversed(transitions):
        found.setdefault(transition.share, []).append(transition)
    return found


def noted(step: Transition) -> tuple[Any, ...]:
    """Return what is compared of a transition: where epochs and generations begin is the store's own affair."""
    return (step.old_state, step.new_state, step.node_id, step.happened_at, step.epoch == 0)


__all__ = ["StreamsMachine"]
