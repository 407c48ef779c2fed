"""The rules of producers, nodes and leaders for streams.

Each verb is called on the store and on the reference model, and both must answer the same.

A handle is a pair, the store's and the model's: where generations and epochs begin is the store's own affair, as long
as they grow. Handles of all kinds (grants, leaderships, incarnations, surveys) are kept for ever, and live and stale
ones are drawn equally often: a node that was paused writes under what it once had, a leader that was replaced
allocates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from holdfast.errors import HoldfastError
from holdfast.model.allocation import (
    Grant,
    GrantTo,
    Leadership,
    Move,
    NodeKey,
    Revoke,
    Seize,
    SeizeReason,
    Share,
    ShareState,
    Timing,
)
from holdfast.model.event import NewEvent
from holdfast.store.backend import Backend
from holdfast.store.stream_values import Member, NewNode, Start, StartAt, Subscription
from holdfast.testing.clock import ManualClock
from holdfast.testing.reference import Reference, ReferenceBackend, StreamReference
from holdfast.testing.reference.streams.backend import ReferenceStreams
from holdfast.testing.stores import open_store

T = TypeVar("T")
SUBSCRIPTIONS = {
    "billing": Subscription("orders"),
    "audit": Subscription(),
    "one": Subscription("orders", "a"),
}
CATEGORIES = ("orders", "sales")
STREAMS = ("a", "b", "c", "d")
NODES = ("node-1", "node-2", "node-3")
ALL = 10_000
TIMING = Timing()
TICK = timedelta(microseconds=1)  # so that no instant falls on the very end of a duration

starts: st.SearchStrategy[Start] = st.sampled_from([StartAt.BEGINNING, 0, 1, 3, StartAt.END])
seconds = st.sampled_from([0, 3, 20]).map(lambda n: timedelta(seconds=n))


class Pair(NamedTuple, Generic[T]):
    """One handle, as the store and as the model know it."""

    real: T
    model: T


class Seen(NamedTuple):
    """An allocation as a survey showed it."""

    share: Share
    generation: Pair[int]
    state: ShareState


async def _subscribe(consumer: str, subscription: Subscription, start: Start, streams: Any) -> bool:
    return bool(await streams.consumers.subscribe(consumer, subscription, start))


class StreamsRules(RuleBasedStateMachine):
    """Runs the store behind `url` beside the reference model, each example in an event loop of its own."""

    def url(self) -> str:
        """Return the URL of an empty store; asked for once in each example."""
        return "reference:"

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.model = StreamReference(self.clock)
        self.mirror = ReferenceStreams(self.model)
        self.events: list[NewEvent] = []
        self.keys: list[NodeKey] = []
        self.grants: list[Pair[Grant]] = []
        self.leaderships: list[Pair[Leadership]] = []
        self.surveys: list[list[Seen]] = []
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    async def open(self) -> Backend:
        url = self.url()
        if url == "reference:":
            return ReferenceBackend(Reference(self.clock))
        return await self.stack.enter_async_context(open_store(url, clock=self.clock))

    @initialize(starts=st.lists(starts, min_size=3, max_size=3), data=st.data())
    def start(self, starts: list[Start], data: st.DataObject) -> None:
        """Begin amid the work: consumers have subscribed, nodes have joined, and what there is is granted."""
        self.store = self.run(self.open())
        self.both(lambda streams: streams.events.open_category("orders", 2))
        first = [self._event(stream) for stream in "abacbd"]
        self.both(lambda streams: streams.events.append(first))
        for start, (consumer, subscription) in zip(starts, SUBSCRIPTIONS.items(), strict=True):
            self.both(partial(_subscribe, consumer, subscription, start))
        for node_id in NODES:
            self.join(node_id, is_reborn=False)
        self._lead(self.keys[0], timedelta(seconds=30))
        self.hand_out(data)

    def teardown(self) -> None:
        self.run(self.stack.aclose())
        self.runner.close()

    async def _outcome(self, work: Coroutine[Any, Any, T]) -> T | type[HoldfastError]:
        try:
            return await work
        except HoldfastError as refusal:
            return type(refusal)

    def pair(self, call: Callable[[Any], Coroutine[Any, Any, T]]) -> Pair[Any]:
        """Call the store and the model; return what both answered, or which error both raised."""
        real = self.run(self._outcome(call(self.store.streams)))
        return Pair(real, self.run(self._outcome(call(self.mirror))))

    def both(self, call: Callable[[Any], Coroutine[Any, Any, T]]) -> Any:
        """Call the store and the model, which must answer the same."""
        real, model = self.pair(call)
        assert real == model
        return model

    def draw(self, data: st.DataObject, handles: Sequence[T], is_live: Callable[[T], bool]) -> T:
        """Draw whether a handle is to be live or stale, then which; whichever there is if only one sort exists."""
        live = [handle for handle in handles if is_live(handle)]
        stale = [handle for handle in handles if not is_live(handle)]
        first, other = (live, stale) if data.draw(st.booleans(), label="live") else (stale, live)
        return data.draw(st.sampled_from(first or other), label="handle")

    # -- what a producer does

    @rule(data=st.data(), count=st.integers(1, 4), category=st.sampled_from(CATEGORIES))
    def append(self, data: st.DataObject, count: int, category: str) -> None:
        batch: list[NewEvent] = []
        for _ in range(count):
            if self.events and data.draw(st.integers(0, 5), label="repeat") == 0:
                batch.append(data.draw(st.sampled_from(self.events), label="event"))
                continue
            stream = data.draw(st.sampled_from(STREAMS), label="stream")
            is_first = stream not in [event.stream for event in batch if event.category == category]
            off = data.draw(st.sampled_from([None, None, None, 0, 0, 1]), label="off") if is_first else None
            expected = None if off is None else self.model.stream_version(category, stream) + off
            batch.append(self._event(stream, category, expected))
        self.both(lambda streams: streams.events.append(batch))

    def _event(self, stream: str, category: str = "orders", expected: int | None = None) -> NewEvent:
        """Return an event; ids are in order and the same in every run, so that an example can be replayed."""
        number = len(self.events) + 1
        event = NewEvent(
            id=f"00000000-0000-7000-8000-{number:012x}",
            category=category,
            stream=stream,
            name="happened",
            payload=f'{{"n": {number}}}',
            headers={"n": str(number)} if number % 3 == 0 else None,
            expected_version=expected,
        )
        self.events.append(event)
        return event

    @rule(
        category=st.sampled_from(CATEGORIES),
        stream=st.sampled_from(STREAMS),
        after=st.none() | st.integers(0, 5),
        backwards=st.booleans(),
        ago=seconds,
        partitions=st.sampled_from([None, None, 1, 2]),
    )
    def look(
        self, category: str, stream: str, after: int | None, backwards: bool, ago: timedelta, partitions: int | None
    ) -> None:
        self.both(lambda s: s.events.read_stream(category, stream, after=after, limit=3, backwards=backwards))
        self.both(lambda streams: streams.events.stream_version(category, stream))
        self.both(lambda streams: streams.events.position_at(category, 0, self.clock.now - ago))
        self.both(lambda streams: streams.events.open_category(category, partitions))

    @rule(category=st.sampled_from(CATEGORIES), older_than=seconds, past_unread=st.sampled_from([False, False, True]))
    def trim(self, category: str, older_than: timedelta, past_unread: bool) -> None:
        self.both(lambda s: s.events.trim(category, older_than=older_than, limit=ALL, past_unread=past_unread))

    @rule(span=st.sampled_from([0, 1, 4, 11, 13]), beating=st.sets(st.sampled_from(NODES)))
    def advance(self, span: int, beating: set[str]) -> None:
        """Let time pass; some nodes report at its end, the others were paused."""
        self.clock.advance(timedelta(seconds=span) + TICK)
        for key in self.keys:
            if key.node_id in beating and self.model.is_registered(key):
                self._beat(key, TIMING)

    # -- what nodes do

    @rule(node_id=st.sampled_from(NODES), is_reborn=st.booleans())
    def join(self, node_id: str, is_reborn: bool) -> None:
        is_live = sum(key.node_id == node_id for key in self.keys)
        key = NodeKey(node_id, f"life-{max(is_live, 1) + is_reborn}")
        if key not in self.keys:
            self.keys.append(key)
        members = tuple(Member(name) for name in sorted(SUBSCRIPTIONS))
        new = NewNode(node=key, host="host", pid=len(self.keys), members=members, timing=TIMING)
        self.both(lambda streams: streams.allocations.join(new))

    def key(self, data: st.DataObject) -> NodeKey:
        return self.draw(data, self.keys, self.model.is_registered)

    @precondition(lambda self: self.keys)
    @rule(data=st.data(), factor=st.sampled_from([1, 1, 3]))
    def heartbeat(self, data: st.DataObject, factor: int) -> None:
        self._beat(self.key(data), TIMING.scaled(factor))

    def _beat(self, key: NodeKey, timing: Timing) -> None:
        real, model = self.pair(lambda streams: streams.allocations.heartbeat(key, timing))
        assert real.is_known == model.is_known
        seen = [
            [(owned.grant.share, owned.state, owned.drain_left) for owned in answer.owned] for answer in (real, model)
        ]
        assert seen[0] == seen[1]
        for mine, other in zip(real.owned, model.owned, strict=True):
            assert Pair(mine.grant, other.grant) in self.grants

    @precondition(lambda self: self.keys)
    @rule(data=st.data(), verb=st.sampled_from(["leave", "drain"]))
    def depart(self, data: st.DataObject, verb: str) -> None:
        key = self.key(data)
        self.both(lambda streams: getattr(streams.allocations, verb)(key))

    @precondition(lambda self: self.keys)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        key = self.key(data)
        self.both(lambda streams: streams.allocations.leave(key, is_lost=True))

    # -- what leaders do

    @precondition(lambda self: self.keys)
    @rule(data=st.data(), lease=st.sampled_from([5, 30]).map(lambda n: timedelta(seconds=n)))
    def lead(self, data: st.DataObject, lease: timedelta) -> None:
        self._lead(self.key(data), lease)

    def _lead(self, key: NodeKey, lease: timedelta) -> None:
        real, model = self.pair(lambda streams: streams.allocations.lead(key, lease))
        assert (real is None) == (model is None)
        if real is not None and Pair(real, model) not in self.leaderships:
            assert all(real.epoch > other.real.epoch for other in self.leaderships)
            self.leaderships.append(Pair(real, model))

    def leadership(self, data: st.DataObject) -> Pair[Leadership]:
        return self.draw(data, self.leaderships, lambda pair: self.model.leads(pair.model))

    @precondition(lambda self: self.leaderships)
    @rule(data=st.data(), verb=st.sampled_from(["resign", "complete_shares", "complete_shares", "complete_shares"]))
    def under_leadership(self, data: st.DataObject, verb: str) -> None:
        pair = self.leadership(data)
        real = self.run(getattr(self.store.streams.allocations, verb)(pair.real))
        assert real == self.run(getattr(self.mirror.allocations, verb)(pair.model))

    @rule()
    def survey(self) -> None:
        self.surveys.append(self._survey())

    def _survey(self) -> list[Seen]:
        real, model = self.pair(lambda streams: streams.allocations.survey())
        return [
            Seen(other.share, Pair(mine.generation, other.generation), other.state)
            for mine, other in zip(real.shares, model.shares, strict=True)
        ]

    @precondition(lambda self: self.leaderships and self.keys)
    @rule(data=st.data(), is_fresh=st.sampled_from([True, True, False]), grace=seconds)
    def allocate(self, data: st.DataObject, is_fresh: bool, grace: timedelta) -> None:
        survey = self._survey() if is_fresh or not self.surveys else data.draw(st.sampled_from(self.surveys))
        if survey:
            count = data.draw(st.integers(1, 4), label="count")
            self._allot(self.leadership(data), [self._draw_move(data, survey) for _ in range(count)], grace)

    @precondition(lambda self: self.leaderships)
    @rule(data=st.data())
    def hand_out(self, data: st.DataObject) -> None:
        """Grant all that is free to nodes that live, as a leader does that has just looked."""
        if any(self.model.is_live(key) for key in self.keys):
            moves = [self._move(data, seen, "grant") for seen in self._survey() if seen.state is ShareState.FREE]
            current = [pair for pair in self.leaderships if self.model.leads(pair.model)]
            self._allot((current or self.leaderships)[-1], moves, timedelta(0))

    @precondition(lambda self: self.leaderships)
    @rule(data=st.data())
    def revoke(self, data: st.DataObject) -> None:
        """Revoke something that is granted, as a leader does that balances."""
        granted = [seen for seen in self._survey() if seen.state is ShareState.GRANTED]
        if granted:
            seen = data.draw(st.sampled_from(granted), label="share")
            self._allot(self.leadership(data), [self._move(data, seen, "revoke")], timedelta(0))

    @rule(data=st.data(), silent=st.sampled_from(NODES), reason=st.sampled_from(SeizeReason))
    def lose_a_node(self, data: st.DataObject, silent: str, reason: SeizeReason) -> None:
        """Pause a node for too long, and let whoever may lead take what it has."""
        self.advance(13, set(NODES) - {silent})
        for key in self.keys:
            if self.model.is_live(key):
                self._lead(key, timedelta(seconds=5))
        held = [seen for seen in self._survey() if seen.state is not ShareState.FREE]
        moves: list[Pair[Move]] = [
            Pair(*(Seize(seen.share, number, reason) for number in seen.generation)) for seen in held
        ]
        if self.leaderships:
            self._allot(self.leaderships[-1], moves, timedelta(0))
            self.hand_out(data)

    def _draw_move(self, data: st.DataObject, survey: list[Seen]) -> Pair[Move]:
        seen = data.draw(st.sampled_from(survey), label="share")
        kinds = {
            ShareState.FREE: ["grant", "grant", "grant", "revoke", "seize"],
            ShareState.GRANTED: ["revoke", "seize", "seize", "grant"],
            ShareState.REVOKING: ["seize", "seize", "revoke", "grant"],
        }
        kind = data.draw(st.sampled_from(kinds[seen.state]), label="kind")
        return self._move(data, seen, kind)

    def _move(self, data: st.DataObject, seen: Seen, kind: str) -> Pair[Move]:
        make: Callable[[int], Move]
        match kind:
            case "grant":
                key = self.draw(data, self.keys, self.model.is_live)
                make = lambda generation: GrantTo(seen.share, generation, key)  # noqa: E731
            case "revoke":
                drain = data.draw(st.sampled_from([None, timedelta(seconds=1), timedelta(seconds=3)]), label="drain")
                target = data.draw(st.none() | st.sampled_from(NODES), label="target")
                make = lambda generation: Revoke(seen.share, generation, drain, target)  # noqa: E731
            case _:
                reason = data.draw(st.sampled_from(SeizeReason), label="reason")
                make = lambda generation: Seize(seen.share, generation, reason)  # noqa: E731
        return Pair(make(seen.generation.real), make(seen.generation.model))

    def _allot(self, leadership: Pair[Leadership], moves: Sequence[Pair[Move]], grace: timedelta) -> None:
        allocations = self.store.streams.allocations
        real = self.run(allocations.move_shares(leadership.real, [move.real for move in moves], grace=grace))
        model = self.model.move_shares(leadership.model, [move.model for move in moves], grace=grace)
        assert real == model
        for move, done in zip(moves, model or [], strict=False):
            if done and isinstance(move.real, GrantTo):
                pair = (Grant(each.share, each.generation + 1) for each in move)
                self.grants.append(Pair(*pair))
