"""The lanes of a store, and what is set for its queues and tasks, as this process knows them.

A lane, a queue and a task, is a number. `shape` in `meta` changes whenever a lane is added, or a pause or a
limit is set; a claim is refused unless it names the current one. So a claim reads none of this. `lanes` in `meta`, the
stamp, changes whenever a lane is added; a script that gets numbers of lanes for new jobs is refused unless it
names it. Both are random, not counted: a failover may lose the last lanes, and then others get their numbers.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from holdfast.backends.redis.record import Names
from holdfast.backends.redis.scripts import COMMIT, READ
from holdfast.backends.redis.steps import Command, Group, Guard, Restart, ScriptCall, change, read, sized
from holdfast.backends.redis.wire import Server
from holdfast.store.steps import Steps

_logger = logging.getLogger("holdfast.redis")
Lane = tuple[str, str]
LimitParts = tuple[int | None, int | None, int | None, int | None]


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is set for a queue or a task."""

    paused: bool = False
    max_running: int | None = None
    rate_jobs: int | None = None
    rate_span: int | None = None
    rate_burst: int | None = None
    declared: str | None = None
    key_max_running: int | None = None
    key_rate_jobs: int | None = None
    key_rate_span: int | None = None
    key_rate_burst: int | None = None
    key_declared: str | None = None

    @property
    def limit(self) -> LimitParts:
        """Its limit, as `LimitUse` has it."""
        return self.max_running, self.rate_jobs, self.rate_span, self.rate_burst

    @property
    def key_limit(self) -> LimitParts:
        """The limit of each limit key of a task."""
        return self.key_max_running, self.key_rate_jobs, self.key_rate_span, self.key_rate_burst

    @property
    def is_limited(self) -> bool:
        """Whether it has a limit, or its keys have one."""
        return (*self.limit, *self.key_limit) != (None,) * 8


FREE = Place()
_decode = msgspec.json.Decoder(Place).decode


def decode_place(text: bytes) -> Place:
    """Return what is set for a queue or a task; nothing if the text is empty."""
    return _decode(text) if text else FREE


_encode = msgspec.json.encode


class LanesSeen(NamedTuple):
    """What a process knows of a store's lanes, queues and tasks, all as it was at one instant."""

    store: bytes
    shape: bytes
    stamp: bytes
    lanes: Sequence[Lane]
    queues: Mapping[str, Place]
    tasks: Mapping[str, Place]
    numbers: Mapping[Lane, int]

    def place_of(self, lane: Lane) -> tuple[Place, Place]:
        """Return what is set for a lane's queue and for its task."""
        return self.queues.get(lane[0], FREE), self.tasks.get(lane[1], FREE)

    def is_paused(self, lane: Lane) -> bool:
        """Whether its queue or its task is paused."""
        return any(place.paused for place in self.place_of(lane))


class LaneDirectory:
    """The lanes, queues and tasks of a store, read again when they have changed.

    Event loops and threads share it: each look replaces `seen` as a whole. A verb that decides on one state keeps that.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self.seen = LanesSeen(b"", b"", b"", (), {}, {}, {})

    def refresh(self) -> Steps[None]:
        """Read them."""
        meta: Command = ("HMGET", "meta", "id", "shape", "lanes")
        words = sized([meta, ("LRANGE", "lanes", 0, -1), ("HGETALL", "queues"), ("HGETALL", "tasks")])
        _, (store, shape, stamp), lanes, queues, tasks = yield ScriptCall(READ, words, any_store=True)
        found: list[Lane] = []
        for lane in lanes:
            queue, _, task = lane.decode().partition("\0")
            found.append((queue, task))
        numbers = {lane: number for number, lane in enumerate(found)}
        if self.seen.store not in {b"", store}:
            _logger.error(
                "%s: the store is not the one that this process has used until now: that one was lost or deleted, with "
                "all its jobs, and a new one was installed",
                self._server.location.url,
            )
        self.seen = LanesSeen(store or b"", shape or b"", stamp or b"", found, _places(queues), _places(tasks), numbers)
        self._server.id = self.seen.store

    @property
    def is_replicated(self) -> bool:
        """Whether an enqueue waits for replicas."""
        return self._server.location.replicas > 0

    @property
    def owner(self) -> object:
        """What identifies the handlers' transactions of the store."""
        return self._server

    def known(self) -> Steps[LanesSeen]:
        """Return them; read them first if that was never done, or if the store or the connection is another one."""
        if not self._server.id:
            yield from self.refresh()
        return self.seen

    def numbers(self, lanes: Iterable[Lane]) -> Steps[tuple[dict[Lane, int], bytes]]:
        """Return the numbers of lanes, and the stamp under which they have them; new ones are added."""
        seen = yield from self.known()
        wanted = dict.fromkeys(lanes)
        missing = [lane for lane in wanted if lane not in seen.numbers]
        if missing:
            yield from self.refresh()
            seen = self.seen
            missing = [lane for lane in wanted if lane not in seen.numbers]
        if missing:
            words = [f"{queue}\0{task}" for queue, task in missing]
            commands: list[Command] = [("RPUSH", "lanes", *words), ("HSET", "meta", "lanes", secrets.token_hex(8))]
            group = Group([Guard("h", "meta", "shape", seen.shape)], [*commands, _reshape()])
            if (yield ScriptCall(COMMIT, [1, 1, *group.words(), ""], is_kept_back=True)) == b"!":
                raise Restart
            yield from self.refresh()
            seen = self.seen
        return {lane: seen.numbers[lane] for lane in wanted}, seen.stamp

    def name(self, lane: int) -> Steps[Lane]:
        """Return the queue and task of a lane."""
        if not self._server.id or lane >= len(self.seen.lanes):
            yield from self.refresh()
        return self.seen.lanes[lane]

    def names(self, lane: int, worker: bytes | None = None) -> Steps[Names]:
        """Return the names in a record."""
        queue, task = yield from self.name(lane)
        return Names(queue, task, None if worker is None else worker.decode())

    def set(self, kind: str, name: str, **parts: Any) -> Steps[bool]:
        """Set something for a queue or a task (`kind`: queues, tasks); return whether that is a change."""
        _, (text,) = yield from read(("HGET", kind, name))
        old = decode_place(text or b"")
        new = msgspec.structs.replace(old, **parts)
        if new == old:
            return False
        command: Command = ("HSET", kind, name, _encode(new))
        yield from change([Guard("h", kind, name, text or b"")], command, _reshape(), ("WAKE", ""))
        return True


def _reshape() -> Command:
    return ("HSET", "meta", "shape", secrets.token_hex(8))


def _places(found: Sequence[bytes]) -> dict[str, Place]:
    return {name.decode(): _decode(text) for name, text in zip(found[::2], found[1::2], strict=True)}
