"""Lists of queues, tasks, limits, workers and counts; heartbeats."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from holdfast.backends.redis.job_reads import JobReads, StoredJob
from holdfast.backends.redis.job_writes import COUNTERS, RUN_TIME
from holdfast.backends.redis.lane_directory import FREE, Lane, LanesSeen
from holdfast.backends.redis.record import RETRYING, RUNNING, SCHEDULED, id_of, seq_of, text_of
from holdfast.backends.redis.steps import AT_ONCE, Command, Group, Guard, change, read, read_many, write
from holdfast.model.instants import span_micros
from holdfast.model.turn import run_at_of
from holdfast.store.steps import Steps

Counted = dict[int, dict[str, int]]
SETS = "rxstbqf"  # ready, running, delayed, retrying, blocked, waiting for a slot, failed
_KEY_SETS = 500  # order keys that one step looks at
_MINUTES = 100  # counted minutes that one step reads: each has some numbers for each lane
_THINGS = ("enqueued", "completed", "retried", "failed", "cancelled", "lost")


def counted(
    rows: JobReads, letters: str, *more: Command, is_one_step: bool = False
) -> Steps[tuple[LanesSeen, int, Counted, list[Any]]]:
    """Return the lanes, the clock, how many jobs each lane has in some sets, and the replies to more commands.

    Each lane is counted at one instant, and all lanes are: if one was added meanwhile, this is repeated. `is_one_step`:
    all at the same instant, however many lanes there are.
    """
    directory = rows.directory
    while True:
        seen = yield from directory.known()
        lanes = range(len(seen.lanes))
        commands: list[Command] = [("ZCARD", f"{letter}{lane}") for lane in lanes for letter in letters]
        size = len(commands) if is_one_step else AT_ONCE // len(letters) * len(letters)
        found: list[Any] = []
        while len(commands) > size:
            _, some = yield from read(*commands[:size])
            found += some
            del commands[:size]
        now, (shape, *some) = yield from read(("HGET", "meta", "shape"), *commands, *more)
        found += some
        if shape == seen.shape:
            break
        yield from directory.refresh()
    numbers: Iterator[int] = iter(found)
    counts = {lane: {letter: next(numbers) for letter in letters} for lane in lanes}
    return seen, now, counts, list(numbers)


def _heads(rows: JobReads, lanes: Iterable[int]) -> Steps[dict[int, tuple[int, StoredJob]]]:
    """Return the clock, and the first ready job of each of these lanes that has one."""
    _, found = yield from read_many([("ZRANGE", f"r{lane}", 0, 0) for lane in lanes])
    names = {names[0][8:]: lane for lane, names in zip(lanes, found, strict=True) if names}
    now, jobs = yield from rows.seen(list(names))
    return {names[job.id16]: (now, job) for job in jobs}


def _due(heads: Iterable[tuple[int, StoredJob]]) -> int | None:
    """Return how long the job whose turn is next has been due."""
    first = min(heads, key=lambda head: (head[1].record.turn, head[1].record.seq), default=None)
    if first is None:
        return None
    now, job = first
    return now - run_at_of(job.record.turn, job.record.priority)


def _summed(counts: Counted, lanes: Sequence[int]) -> tuple[int, int, int, int, int]:
    """Return how many are ready, running, scheduled, blocked and failed."""
    ready, running, *some, failed = (sum(counts[lane][name] for lane in lanes) for name in SETS)
    delayed, retrying, blocked, limited = some
    return ready, running, delayed + retrying, blocked + limited, failed


def _lanes(seen: LanesSeen, at: int, name: str) -> list[int]:
    return [number for number, lane in enumerate(seen.lanes) if lane[at] == name]


def _summaries(at: int) -> Callable[..., Steps[list[Any]]]:
    """List the queues (`at` 0) or the tasks (1), by their place in a lane."""

    def listing(rows: JobReads, most: int) -> Steps[list[Any]]:
        seen, _, counts, _ = yield from counted(rows, SETS)
        heads = yield from _heads(rows, counts)
        places = (seen.queues, seen.tasks)[at]
        answer: list[Any] = []
        by_name: defaultdict[str, list[int]] = defaultdict(list)
        for number, lane in enumerate(seen.lanes):
            by_name[lane[at]].append(number)
        for name in sorted(by_name.keys() | places.keys()):
            lanes = by_name[name]
            ready, running, *rest = _summed(counts, lanes)
            is_cut = any(counts[lane]["r"] >= most for lane in lanes)
            kept = [min(number, most) for number in rest]
            due = _due(heads[lane] for lane in lanes if lane in heads)
            paused = places.get(name, FREE).paused
            answer.append((name, paused, min(ready, most), running, *kept, is_cut, due))
        return answer

    return listing


def _depth(rows: JobReads, queue: str) -> Steps[list[Any]]:
    seen, _, counts, _ = yield from counted(rows, "r")
    return [(sum(counts[lane]["r"] for lane in _lanes(seen, 0, queue)),)]


def _waiting_tasks(rows: JobReads) -> Steps[list[Any]]:
    seen, _, counts, _ = yield from counted(rows, "r")
    lanes = sorted(seen.lanes[lane] for lane, number in counts.items() if number["r"])
    return [(*lane, seen.is_paused(lane)) for lane in lanes]


def _job_facts(rows: JobReads, id: str) -> Steps[list[Any]]:  # noqa: A002 - the name of the parameter
    yield from rows.directory.refresh()
    now, found = yield from rows.seen([id_of(id)])
    answer: list[Any] = []
    for job in found:
        queue, task = rows.directory.seen.place_of((job.names.queue, job.names.task))
        head: str | None = None
        if job.record.order_key is not None:
            _, (first,) = yield from read(("ZRANGE", b"o" + job.record.key_set(job.names.queue), 0, 0))
            head = text_of(first[0][8:]) if first else None
        answer.append((now, queue.paused, task.paused, head))
    return answer


def _jobs_ahead(rows: JobReads, turn: int, seq: int, limit: int) -> Steps[list[Any]]:
    yield from rows.directory.refresh()
    seen = rows.directory.seen
    commands: list[Command] = []
    for lane in range(len(seen.lanes)):
        commands.append(("ZCOUNT", f"r{lane}", "-inf", f"({turn}"))
        commands.append(("ZRANGE", f"r{lane}", turn, turn, "BYSCORE", "LIMIT", 0, limit))
    _, found = yield from read_many(commands)
    return [
        (*lane, seen.is_paused(lane), min(limit, before + sum(seq_of(name) < seq for name in ties)))
        for lane, before, ties in zip(seen.lanes, found[::2], found[1::2], strict=True)
    ]


def _limits(rows: JobReads) -> Steps[list[Any]]:
    seen, now, counts, (rates,) = yield from counted(rows, "x", ("HGETALL", "rates"))
    uses = limit_uses(seen, now, {lane: number["x"] for lane, number in counts.items()}, rates)
    for name, place in sorted(seen.tasks.items()):
        if place.key_limit != FREE.key_limit:
            running = yield from _running_with_keys(rows, _lanes(seen, 1, name))
            uses.append(("key", name, *place.key_limit, 0, running, now))
    return uses


def _running_with_keys(rows: JobReads, lanes: Sequence[int]) -> Steps[int]:
    _, found = yield from read_many([("ZRANGE", f"x{lane}", 0, -1) for lane in lanes])
    _, jobs = yield from rows.seen([name[8:] for names in found for name in names])
    return sum(job.record.is_limited and job.record.code == RUNNING for job in jobs)


def limit_uses(seen: LanesSeen, now: int, running: dict[int, int], rates: Sequence[bytes]) -> list[Any]:
    """Return the limits as `LimitUse` has them, with the leases of their lanes."""
    spent = dict(zip(rates[::2], rates[1::2], strict=True))
    answer: list[Any] = []
    for at, (kind, places) in enumerate((("queue", seen.queues), ("task", seen.tasks))):
        for name, place in sorted(places.items()):
            if place.limit != FREE.limit:
                held = sum(running[lane] for lane in _lanes(seen, at, name))
                rate_at = int(spent.get(rate_field(kind, name), 0))
                answer.append((kind, name, *place.limit, rate_at, held, now))
    return answer


def rate_field(kind: str, name: str) -> bytes:
    """Return the field of a limit in `rates`."""
    return f"{kind}\0{name}".encode()


def _declared_limits(rows: JobReads) -> Steps[list[Any]]:
    yield from rows.directory.refresh()
    seen = rows.directory.seen
    kinds = (("queue", seen.queues), ("task", seen.tasks))
    declared = [(kind, name, place.declared) for kind, places in kinds for name, place in places.items()]
    declared += [("key", name, place.key_declared) for name, place in seen.tasks.items()]
    return [each for each in declared if each[2] is not None]


def _next_due(rows: JobReads) -> Steps[list[Any]]:  # noqa: ARG001
    firsts: list[Command] = [("ZRANGE", name, 0, 0, "WITHSCORES") for name in ("due", "wakes")]
    now, (*found, changed, batches) = yield from read(*firsts, ("ZCARD", "changed"), ("LLEN", "batches"))
    waits = [max(0, int(float(first[1])) - now) for first in found if first]
    return [(0 if batches else min(waits, default=None), changed > 0)]


def _outstanding(rows: JobReads) -> Steps[list[Any]]:
    more: list[Command] = [
        ("SSCAN", "lines", 0, "COUNT", _KEY_SETS),
        ("ZCARD", "changed"),
        ("LRANGE", "batches", 0, -1),
    ]
    # A job whose end makes one of another lane ready is counted, or that other one.
    seen, _, counts, (scanned, changed, batches) = yield from counted(rows, "rstxq", *more, is_one_step=True)
    answer: list[Any] = []
    for lane, numbers in counts.items():
        names = seen.lanes[lane]
        paused = seen.is_paused(names)
        for state, letter in (("ready", "r"), ("delayed", "s"), ("retrying", "t"), ("running", "x"), ("blocked", "q")):
            if numbers[letter]:
                answer.append((state, *names, paused and letter != "x", numbers[letter]))
    # Order keys are looked at page by page, and summed: the memory does not grow with them, but the time does.
    behind: Counter[tuple[str, str, str, bool]] = Counter()
    while True:
        cursor, key_sets = scanned
        yield from _add_behind(rows, list(dict.fromkeys(key_sets)), behind)
        if cursor == b"0":
            break
        _, (scanned,) = yield from read(("SSCAN", "lines", cursor, "COUNT", _KEY_SETS))
    answer += [(*place, number) for place, number in behind.items()]
    if batches:
        _, staged = yield from read(*(("LLEN", b"g" + batch[:-8]) for batch in batches))
        changed += sum(staged)
    if changed:
        answer.append(("undecided", "", "", False, changed))
    return answer


def _add_behind(rows: JobReads, key_sets: Sequence[bytes], behind: Counter[tuple[str, str, str, bool]]) -> Steps[None]:
    """Count the jobs behind the heads of order keys, under the task of the head."""
    for start in range(0, len(key_sets), _KEY_SETS):
        commands: list[Command] = []
        for key_set in key_sets[start : start + _KEY_SETS]:
            commands += (("ZCARD", b"o" + key_set), ("ZRANGE", b"o" + key_set, 0, 0))
        _, found = yield from read(*commands)
        waiting = {first[0][8:]: number - 1 for number, first in zip(found[::2], found[1::2], strict=True) if first}
        _, heads = yield from rows.seen(list(waiting))
        for job in heads:
            runs = job.record.code == RUNNING
            is_delayed = job.record.code == SCHEDULED and not job.record.flags & RETRYING
            state = "behind running" if runs else "delayed" if is_delayed else "blocked"
            queue, task = rows.directory.seen.place_of((job.names.queue, job.names.task))
            paused = queue.paused or (task.paused and not runs)
            if waiting[job.id16] > 0:
                behind[state, job.names.queue, job.names.task, paused] += waiting[job.id16]


# -- workers


def heartbeat(worker_id: str, heartbeat: str, tasks: str | None) -> Steps[bool]:
    """Record that a worker is alive; its start and its tasks with the first heartbeat only."""
    now, _ = yield from read()
    yield from change(
        [],
        ("HSETNX", "births", worker_id, f"{now} {tasks or ''}"),
        ("HSET", "heartbeats", worker_id, f"{now} {heartbeat}"),
    )
    return True


def _workers(rows: JobReads) -> Steps[list[Any]]:  # noqa: ARG001
    now, (heartbeats, births) = yield from read(("HGETALL", "heartbeats"), ("HGETALL", "births"))
    born = dict(zip(births[::2], births[1::2], strict=True))
    if not heartbeats:
        return []
    _, (numbers,) = yield from read(("HMGET", "worker", *heartbeats[::2]))
    _, held = yield from read(*(("ZCARD", f"w{(number or b'0').decode()}") for number in numbers))
    answer: list[tuple[int, str, Any]] = []
    for worker, text, running in zip(heartbeats[::2], heartbeats[1::2], held, strict=True):
        seen, _, words = text.decode().partition(" ")
        started, _, tasks = born.get(worker, text).decode().partition(" ")
        row = (words, tasks or None, int(started), now - int(seen), running)
        answer.append((int(started), worker.decode(), row))
    return [row for _, _, row in sorted(answer)]


# -- counts


def _counts(rows: JobReads, since: int) -> Steps[list[Any]]:
    yield from rows.directory.known()
    now, _ = yield from read()
    _, (minutes,) = yield from read(("ZRANGE", "minutes", now - since, "+inf", "BYSCORE"))
    found: list[Any] = []
    for start in range(0, len(minutes), _MINUTES):
        _, some = yield from read(*(("HGETALL", b"n" + minute) for minute in minutes[start : start + _MINUTES]))
        found += some
    answer: list[Any] = []
    for minute, fields in zip(minutes, found, strict=True):
        numbers: dict[int, dict[str, int]] = {}
        for field, number in zip(fields[::2], fields[1::2], strict=True):
            lane, letter = int(field[:-1]), field[-1:].decode()
            numbers.setdefault(lane, {})[letter] = int(number)
        listed: list[tuple[Lane, Any]] = []
        for lane, each in numbers.items():
            names = yield from rows.directory.name(lane)
            things = [each.get(COUNTERS[thing], 0) for thing in _THINGS]
            listed.append((names, (int(minute), *names, *things, each.get(RUN_TIME, 0))))
        answer += [row for _, row in sorted(listed)]
    return answer


def _count_sums(rows: JobReads, since: int) -> Steps[list[Any]]:
    sums: dict[Lane, list[Any]] = {}
    for minute, queue, task, *numbers in (yield from _counts(rows, since)):
        known = sums.setdefault((queue, task), [minute, *([0] * len(numbers))])
        known[1:] = [one + other for one, other in zip(known[1:], numbers, strict=True)]
    return [(known[0], *lane, *known[1:]) for lane, known in sorted(sums.items())]


def prune_records(counts: timedelta | None, workers: timedelta) -> Steps[None]:
    """Delete old counts, and workers that have been silent for too long."""
    now, (heartbeats, minutes) = yield from read(("HGETALL", "heartbeats"), ("ZRANGE", "minutes", 0, 999))
    commands: list[Command] = []
    if counts is not None:
        old = [minute for minute in minutes if int(minute) < now - span_micros(counts)]
        commands += [("UNLINK", b"n" + minute) for minute in old]
        commands += [("ZREM", "minutes", *old)] if old else []
    groups = [Group([], commands)] if commands else []
    for worker, text in zip(heartbeats[::2], heartbeats[1::2], strict=True):
        if int(text.partition(b" ")[0]) < now - span_micros(workers):
            guard = Guard("h", "heartbeats", worker, text)  # it may come back now, and its tasks are sent only once
            groups.append(Group([guard], [("HDEL", "heartbeats", worker), ("HDEL", "births", worker)]))
    for start in range(0, len(groups), AT_ONCE):
        yield from write(groups[start : start + AT_ONCE])


LISTS: dict[str, Callable[..., Steps[list[Any]]]] = {
    "queues": _summaries(0),
    "tasks": _summaries(1),
    "depth": _depth,
    "waiting_tasks": _waiting_tasks,
    "job_facts": _job_facts,
    "jobs_ahead": _jobs_ahead,
    "limits": _limits,
    "declared_limits": _declared_limits,
    "next_due": _next_due,
    "outstanding": _outstanding,
    "workers": _workers,
    "counts": _counts,
    "count_sums": _count_sums,
}
