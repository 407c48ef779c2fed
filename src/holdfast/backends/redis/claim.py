"""Lease ready jobs: by one script, or, if limits concern some of them, by a choice that a script checks."""

from __future__ import annotations

import random
import struct
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from holdfast.backends.redis import limit_keys
from holdfast.backends.redis.job_reads import JobReads
from holdfast.backends.redis.lane_directory import FREE, Lane, LanesSeen
from holdfast.backends.redis.queue_lists import counted, limit_uses, rate_field
from holdfast.backends.redis.record import HEAD, KEYED, LEASE, LONG, bucket, seq_of, text_of, unpack, unpack_body
from holdfast.backends.redis.scripts import CLAIM, FRONT
from holdfast.backends.redis.steps import Command, Pause, ScriptCall, Word, read
from holdfast.errors import StoreUnavailable
from holdfast.model.instants import MICROSECOND, span_micros
from holdfast.model.job import LeasedJob
from holdfast.model.limits import LanePlace, LimitUse, Shares, concerned_by, limits_of, next_wait, share_out, taken_by
from holdfast.store.steps import Steps
from holdfast.store.values import Claim, ClaimRequest

MOST = 1000  # jobs that one claim leases, which is one script
_LOOKS = 20  # at lanes and limits that others change
_PAUSE = 0.002  # seconds before the second look, at most; more before later ones
_LANE = struct.Struct(">I")
_BODY_AT = HEAD.size + LEASE.size


class _Wanted(NamedTuple):
    """The lanes that a worker serves and that are not paused: those without limits, and those with.

    All that a look decides is about `seen`, whose shape the claim names: others of this process may read a newer one
    meanwhile.
    """

    seen: LanesSeen
    free: list[int]
    limited: list[int]


def claim(rows: JobReads, request: ClaimRequest) -> Steps[Claim]:
    """Lease the first jobs by turn and seq over all lanes, all under one fence."""
    if request.limit < 1:
        return Claim([])
    yield from rows.directory.known()
    for look in range(_LOOKS):
        if look > 1:
            yield Pause(random.uniform(0, _PAUSE * look))  # noqa: S311 - not a secret
        wanted = _wanted(rows.directory.seen, request)
        if look and request.slots:
            request = msgspec.structs.replace(request, limit=min(request.limit, request.slots))
        if wanted.limited:
            claimed = yield from _within_limits(rows, request, wanted, look)
        else:
            claimed = yield from _free(rows, request, wanted)
        if claimed is not None:
            return claimed
    raise StoreUnavailable("limits of queues or tasks change faster than they can be read: try again")


def _free(rows: JobReads, request: ClaimRequest, wanted: _Wanted) -> Steps[Claim | None]:
    """Claim from lanes without limits; None if the lanes have changed, or jobs were evicted."""
    reply: Sequence[bytes] = yield ScriptCall(CLAIM, [*_words(wanted, request), b""])
    if reply[0] == b"shape":
        yield from rows.directory.refresh()
    if reply[0] == b"none":
        return Claim([])
    if reply[0] != b"jobs":
        return None
    jobs = _jobs(reply, wanted.seen.lanes)
    return Claim(jobs, is_cut=reply[2] == b"1" or len(jobs) == MOST < request.limit)


def _within_limits(rows: JobReads, request: ClaimRequest, wanted: _Wanted, look: int) -> Steps[Claim | None]:
    """Claim what limits allow; None if something has changed since it was read."""
    found = yield from _choose(rows, request, wanted, look)
    if found is None:
        return None
    if not found.uses:  # a job that has become ready in a lane with a limit since then is left to the next claim
        return (yield from _free(rows, request, wanted._replace(limited=[])))
    if not found.names:
        return found.claimed([], is_cut=False)
    reply: Sequence[bytes] = yield ScriptCall(CLAIM, [*_words(wanted, request), b"".join(found.names), *found.guards])
    if reply[0] == b"jobs":
        return found.claimed(_jobs(reply, wanted.seen.lanes), is_cut=reply[2] == b"1")
    if reply[0] == b"shape":
        yield from rows.directory.refresh()
    return None


def _wanted(seen: LanesSeen, request: ClaimRequest) -> _Wanted:
    tasks, queues = set(request.tasks), None if request.queues is None else set(request.queues)
    wanted = _Wanted(seen, [], [])
    for number, lane in enumerate(seen.lanes):
        if lane[1] in tasks and (queues is None or lane[0] in queues):
            places = seen.place_of(lane)
            if not any(place.paused for place in places):
                (wanted.limited if any(place.is_limited for place in places) else wanted.free).append(number)
    return wanted


def _words(wanted: _Wanted, request: ClaimRequest) -> list[Word]:
    lease = (request.worker_id, span_micros(request.lease), int(request.isolates))
    lanes = b"".join(map(_LANE.pack, wanted.free + wanted.limited))
    return [wanted.seen.shape, *lease, min(request.limit, MOST), request.max_bytes, lanes]


def _jobs(reply: Sequence[bytes], lanes: Sequence[Lane]) -> list[LeasedJob]:
    fence, ids = int(reply[1]), reply[3]
    return [_leased(ids[16 * k : 16 * k + 16], text, fence, lanes) for k, text in enumerate(reply[4:])]


def _leased(id16: bytes, text: bytes, fence: int, lanes: Sequence[Lane]) -> LeasedJob:
    head: tuple[int, ...] = HEAD.unpack_from(text)
    _, flags, interrupted, lost, attempt, excused, turn, seq, lane, priority, most, enqueued = head
    at, order_key = _BODY_AT, None
    if flags & KEYED:
        end = at + 2 + int.from_bytes(text[at : at + 2], "big")
        order_key, at = text[at + 2 : end].decode(), end
        order_key = None if order_key[0] == "\0" else order_key  # it is a limit key
    payload, headers, timeout = unpack_body(text[at:])
    queue, task = lanes[lane]
    counters = (attempt, excused, interrupted, lost)
    body = (payload, headers, priority, most, timeout, enqueued, turn)
    return LeasedJob(text_of(id16), seq, queue, task, *body, *counters, fence, order_key)


# -- limits


class _Chosen(NamedTuple):
    """Jobs that the limits allow, as members, and what must still hold when they are claimed.

    Without `uses`, no job that a limit concerns was ready, and no limit was looked at.
    """

    names: list[bytes]
    guards: list[Word]
    uses: Sequence[LimitUse]
    shares: Shares
    is_cut: bool

    def claimed(self, jobs: list[LeasedJob], *, is_cut: bool) -> Claim:
        """Return what a claim of these jobs answers; `is_cut`: another one was faster than this with some."""
        taken = taken_by(((job.queue, job.task) for job in jobs), self.uses)
        wait = next_wait(self.uses, taken, self.shares.refused)
        return Claim(
            jobs,
            is_cut=self.is_cut or is_cut,
            is_limited=bool(self.shares.refused) or self.shares.is_held_back,
            wait=None if wait is None else wait * MICROSECOND,
            limited=concerned_by(jobs, self.uses),
        )


def _choose(rows: JobReads, request: ClaimRequest, wanted: _Wanted, look: int) -> Steps[_Chosen | None]:
    """Choose jobs by turn while every limit has room; None if the lanes have changed.

    After a look that came too late, because other claims had taken what it chose, the next one chooses more than may be
    claimed: the script takes the first that are still ready. Not with a rate, which moves by what is chosen.
    """
    seen = wanted.seen
    more: list[Command] = [("HGETALL", "rates"), limit_keys.MARKED]
    current, now, counts, (rates, marked) = yield from counted(rows, "rx", *more)
    if marked:  # the verb that has marked them may have ended
        yield from limit_keys.fill(rows, marked)
        current, now, counts, (rates, _) = yield from counted(rows, "rx", *more)
    if current.shape != seen.shape:
        return None
    if not any(counts[lane]["r"] for lane in wanted.limited):
        return _Chosen([], [], (), Shares({}, frozenset(), is_held_back=False), is_cut=False)
    running = {lane: number["x"] for lane, number in counts.items()}
    uses = [LimitUse(*use) for use in limit_uses(seen, now, running, rates)]
    uses += [
        LimitUse("key", name, *place.key_limit, rate_at=0, running=0, now=now)
        for name, place in seen.tasks.items()
        if place.key_limit != FREE.key_limit
    ]
    rooms = {use.key: use.room for use in uses}
    has_rates = any(use.rate_jobs is not None and use.kind != "key" and use.room for use in uses)
    slots = request.limit if request.slots is None else min(request.slots, request.limit)
    times = 1 if has_rates or 0 < slots < request.limit else look + 1
    limit, slots = min(request.limit * times, MOST), slots * times
    words: list[Word] = [limit, b"".join(map(_LANE.pack, wanted.free))]
    for lane in wanted.limited:
        room = min((rooms[key] for key in limits_of(*seen.lanes[lane]) if key in rooms), default=limit)
        # One more than may be claimed: whether a limit refuses a job is part of the answer.
        words += (lane, min(limit, room + 1))
    found: Sequence[bytes] = yield ScriptCall(FRONT, words)
    places: dict[LanePlace, bytes] = {}
    fronts: defaultdict[int, list[bytes]] = defaultdict(list)
    for name, turn, lane in zip(found[::3], found[1::3], map(int, found[2::3]), strict=True):
        places[LanePlace(int(float(turn)), seq_of(name), lane)] = name
        fronts[lane].append(name)
    shares = share_out(places, dict(enumerate(seen.lanes)), rooms, limit=limit, slots=slots)
    firsts = {name for lane, share in shares.by_lane.items() for name in fronts[lane][:share]}
    names = [name for _, name in sorted(places.items()) if name in firsts]
    kept = (yield from _within(names, request.max_bytes)) if has_rates else names  # without, the script cuts
    chosen = [seen.lanes[place.lane_id] for place, name in places.items() if name in set(kept)]
    guards = _guards(seen.lanes, uses, taken_by(chosen, uses), rates)
    return _Chosen(kept, guards, uses, shares, is_cut=len(kept) < len(names))


def _within(names: Sequence[bytes], max_bytes: int) -> Steps[list[bytes]]:
    """Return members until their payloads would exceed `max_bytes`, but at least the first."""
    _, found = yield from read(*(("HGET", bucket(name[8:]), name[8:]) for name in names))
    kept: list[bytes] = []
    size = 0
    for name, text in zip(names, found, strict=True):
        size += 0 if text is None else LONG.unpack_from(unpack(text).body)[0]
        if size > max_bytes and kept:
            break
        kept.append(name)
    return kept


def _guards(
    lanes: Sequence[Lane], uses: Sequence[LimitUse], taken: dict[Any, int], rates: Sequence[bytes]
) -> list[Word]:
    """Return what the script compares: that there is still room for all, and the same rates, which it then moves."""
    concerned = [use for use in uses if taken[use.key] and use.kind != "key"]  # of a key, only what may run is ready
    bounded = [use for use in concerned if use.max_running is not None]
    words: list[Word] = [len(bounded)]
    for use in bounded:
        at = 0 if use.kind == "queue" else 1
        among = [number for number, lane in enumerate(lanes) if lane[at] == use.name]
        words += ((use.max_running or 0) - taken[use.key], b"".join(map(_LANE.pack, among)))
    spent = dict(zip(rates[::2], rates[1::2], strict=True))
    for use in concerned:
        if use.rate_jobs is not None:
            field = rate_field(use.kind, use.name)
            words += (field, spent.get(field, b"0"), use.rate_after(taken[use.key]))
    return words
