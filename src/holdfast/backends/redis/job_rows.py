"""`JobRows` on Redis: `lock` only reads; `write` is one script that compares each row with what was read."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec

from holdfast.backends.redis import children, job_lists, limit_keys, queue_lists, retention, unique_keys
from holdfast.backends.redis.job_reads import JobReads, found_by_seq
from holdfast.backends.redis.job_writes import group_of, replacing, score_of, set_of
from holdfast.backends.redis.lane_directory import LaneDirectory
from holdfast.backends.redis.record import (
    COMPLETED,
    RUNNING,
    Extra,
    bucket,
    changed,
    id_of,
    member,
    packed_extra,
    token_of,
    unpack,
)
from holdfast.backends.redis.retention import AT_ONCE
from holdfast.backends.redis.scripts import COMPLETE, DELETE, EXTEND, PROMOTE
from holdfast.backends.redis.staging import apply_batches, wait_for_batch
from holdfast.backends.redis.steps import (
    Command,
    Group,
    Guard,
    Restart,
    ScriptCall,
    Word,
    change,
    pending,
    pieces_of,
    read,
    size_of,
    write,
)
from holdfast.model.job import JobState, Lease
from holdfast.model.lease_rules import longest_covered
from holdfast.model.outcome import Completed
from holdfast.model.steady_clock import Steady
from holdfast.store.job_rows import (
    ById,
    ByIds,
    ByLeases,
    Change,
    CompletedRows,
    Expired,
    JobRow,
    Key,
    Locked,
    NewLink,
    OfWorker,
    Record,
    Selection,
    Waiting,
    WaitingChildren,
)
from holdfast.store.steps import Steps, became_ready
from holdfast.store.unique_keys import Replacement, TakenKeys, UniqueClaim, UniqueKey
from holdfast.store.values import Finish

MANY = 1000  # jobs that a hot script handles
_WAITING = frozenset({JobState.READY, JobState.SCHEDULED, JobState.BLOCKED})
_FENCED = struct.Struct(">Q16sQ")


def fenced(leases: Iterable[Lease]) -> bytes:
    """Return leases as scripts read them: seq, id and fence."""
    return b"".join(_FENCED.pack(lease.seq, id_of(lease.job_id), lease.fence) for lease in leases)


def clean(text: str) -> str:
    """Return a text for people in a form that can be encoded."""
    return text.encode("utf-8", "replace").decode()


class RedisJobRows(JobReads):
    """`JobRows`. With `steady` None the clock may jump: a test sets it."""

    def __init__(self, directory: LaneDirectory, steady: Steady | None, completed_bytes: int | None) -> None:
        super().__init__(directory)
        self.steady = steady
        self._completed_bytes = completed_bytes

    def lock(self, selection: Selection) -> Steps[Locked]:  # noqa: D102 - the port states the contracts
        match selection:
            case ByLeases(leases):
                now, rows = yield from self.rows([id_of(lease.job_id) for lease in leases])
                held = {(lease.seq, lease.fence) for lease in leases}
                return Locked(now, [row for row in rows if (row.seq, row.fence) in held])
            case ById(job_id):
                now, rows = yield from self.rows([id_of(job_id)])
            case ByIds(job_ids):
                now, rows = yield from self.rows([id_of(job_id) for job_id in job_ids])
            case Waiting(job_ids):
                now, rows = yield from self.rows([id_of(job_id) for job_id in job_ids])
                if len(rows) < len(set(job_ids)) or any(row.state not in _WAITING for row in rows):
                    raise Restart  # the keys that led here were read too long ago
            case OfWorker(worker_id, limit):
                return (yield from self.of_worker(worker_id, limit))
            case Expired(access, limit):
                return (yield from self.expired(longest_covered(access), limit))
            case WaitingChildren(seqs):
                now, rows = yield from self.rows((yield from found_by_seq(seqs)))
                return Locked(now, (yield from children.decidable(rows)))
        (yield from pending()).locked.update({row.id: token_of(row).record for row in rows})
        return Locked(now, sorted(rows, key=lambda row: row.seq))

    def write(self, now: int, changes: Sequence[Change], heads: Sequence[int] = ()) -> Steps[list[Change]]:  # noqa: ARG002, D102
        groups = [group_of(_cleaned(each)) for each in changes]
        collected = yield from pending()
        yield from self.fill(
            {key_set_of(each.old) for each in changes if each.settles and each.old.limit_key is not None}
        )
        is_staged = collected.batch is not None
        follow = changes and not is_staged and (collected.jobs or all(each.only_follows for each in changes))
        if collected.is_whole or follow:
            for group in groups:  # with the jobs that are inserted, or are about to be
                collected.add(group)
            if any(each.concerns_children for each in changes):
                yield from became_ready(parents_changed=True)
            return []
        commands: Sequence[Command] = ()
        if len(groups) == 1 and not is_staged:  # what was collected depends on the change as well
            guards, commands = collected.take()
            groups = [Group([*guards, *groups[0].guards], [*commands, *groups[0].commands])]
        elif collected and not is_staged:
            yield from collected.commit()
        refused: list[Change] = []
        for start in range(0, len(groups), AT_ONCE):
            verdicts = yield from write(groups[start : start + AT_ONCE])
            refused += [each for each, done in zip(changes[start:], verdicts, strict=False) if not done]
        if refused and commands:
            raise Restart
        written = [each for each in changes if each not in refused] if refused else changes
        parents_changed = any(each.concerns_children for each in written)
        if written:
            yield from became_ready(parents_changed=parents_changed)
        return refused

    def complete(self, finishes: Sequence[Finish]) -> Steps[CompletedRows]:  # noqa: D102
        refused: set[Key] = set()
        parents = ready = 0
        for start in range(0, len(finishes), MANY):
            some = finishes[start : start + MANY]
            words: list[Word] = [fenced(item.lease for item in some)]
            for number, item in enumerate(some, 1):
                result = item.outcome.result if isinstance(item.outcome, Completed) else None
                if result is not None:
                    words += (number, packed_extra(Extra(result=result)))
            verdicts, ended, key_sets, woken = yield ScriptCall(COMPLETE, words)
            parents, ready = parents + ended, ready + woken
            yield from self.fill(key_sets)
            if b"0" in verdicts:
                done = {_key(item) for item, verdict in zip(some, verdicts, strict=True) if verdict == ord("1")}
                refused |= {_key(item) for item in some} - done
        if ready or parents:
            yield from became_ready(parents_changed=parents > 0)
        return CompletedRows(refused, [])

    def ended(self, leases: Sequence[Lease]) -> Steps[dict[Key, str]]:  # noqa: D102
        ids = [id_of(lease.job_id) for lease in leases]
        if not ids:
            return {}
        commands = [command for id16 in ids for command in (("HGET", bucket(id16), id16), ("HVALS", b"a" + id16))]
        _, found = yield from read(*commands)
        outcomes: dict[Key, str] = {}
        for lease, text, attempts in zip(leases, found[::2], found[1::2], strict=True):
            key = (lease.seq, lease.fence)
            if text is not None:
                record = unpack(text)
                if record.code == COMPLETED and record.fence == lease.fence and record.seq == lease.seq:
                    outcomes[key] = "completed"
            for attempt in map(job_lists.decode_attempt, attempts):
                if attempt.by_holder and attempt.fence == lease.fence:
                    outcomes[key] = attempt.outcome
        return outcomes

    def link(self, links: Sequence[NewLink], inserted: Sequence[str], decide: Sequence[str]) -> Steps[None]:  # noqa: D102
        yield from children.link(self, links, inserted, decide)

    def promote(self, limit: int) -> Steps[int]:  # noqa: D102
        yield from apply_batches()
        moved = 0
        while moved < limit:
            some, key_sets = yield ScriptCall(PROMOTE, [min(AT_ONCE, limit - moved)])
            moved += some
            yield from limit_keys.fill(self, key_sets)
            if some < AT_ONCE:
                break
        yield from self.fill_keys(limit)
        if moved:
            yield from became_ready()
        return moved

    def fill(self, key_sets: Collection[bytes]) -> Steps[None]:
        """Look at limit keys when the verb is written."""
        if key_sets:
            (yield from pending()).afterwards.append(partial(limit_keys.fill, self, list(key_sets)))

    def fill_keys(self, limit: int) -> Steps[int]:  # noqa: D102
        return (yield from limit_keys.fill_due(self, limit))

    def locked_leases(self, leases: Sequence[Lease]) -> Steps[set[int]]:  # noqa: ARG002, D102
        yield from ()
        return set()

    def reachable(self, changes: Sequence[Change]) -> Steps[Sequence[Change]]:  # noqa: D102
        yield from ()
        return changes

    def page(self, record: type[Record], listing: str, **parameters: Any) -> Steps[list[Record]]:  # noqa: D102
        found: Callable[..., Steps[list[Any]]] = _LISTS[listing]
        return [record(*row) for row in (yield from found(self, **parameters))]

    def act(self, action: str, **parameters: Any) -> Steps[bool]:  # noqa: D102, PLR0911
        kind = "tasks" if action.endswith("_task") else "queues"
        match action:
            case "pause" | "resume" | "pause_task" | "resume_task":
                (name,) = parameters.values()
                done = yield from self.directory.set(kind, name, paused=action.startswith("pause"))
                yield from became_ready()
                return done
            case "limit_queue" | "limit_task" | "declare_queue" | "declare_task":
                return (yield from self.directory.set(kind, parameters.pop("name"), **parameters))
            case "limit_key" | "declare_key":
                name, parts = parameters.pop("name"), {f"key_{part}": value for part, value in parameters.items()}
                return (yield from self.directory.set("tasks", name, **parts))
            case "wake_limit_keys":
                yield from limit_keys.mark_all(self, **parameters)
                return True
            case "forget_changes":
                numbers: list[int] = parameters["change_ids"]
                commands: list[Command] = [("ZREMRANGEBYSCORE", "changed", number, number) for number in numbers]
                yield from change([], *commands)
                return True
            case "extend_one":
                return (yield from self._extend_one(**parameters))
            case "set_progress":
                return (yield from self._set_progress(**parameters))
            case "worker_heartbeat":
                return (yield from queue_lists.heartbeat(**parameters))
            case "forget_worker":
                worker_id: str = parameters["worker_id"]
                yield from change([], ("HDEL", "heartbeats", worker_id), ("HDEL", "births", worker_id))
                return True
            case _:
                raise ValueError(action)

    def _extend_one(self, seq: int, fence: int, span: int) -> Steps[bool]:
        for id16 in (yield from found_by_seq([seq])):
            answer: bytes = yield ScriptCall(EXTEND, [_FENCED.pack(seq, id16, fence), span, 0])
            return answer != b"0"
        return False

    def _set_progress(self, seq: int, fence: int, percent: float | None, note: str | None) -> Steps[bool]:
        for id16 in (yield from found_by_seq([seq])):
            _, (text,) = yield from read(("HGET", bucket(id16), id16))
            if text is None:
                return False
            record = unpack(text)
            if record.code != RUNNING or record.fence != fence:
                return False
            extra = record.extra
            extra = msgspec.structs.replace(
                extra,
                percent=extra.percent if percent is None else percent,
                note=extra.note if note is None else clean(note),
            )
            command: Command = ("HSET", bucket(id16), id16, changed(record, extra=extra))
            yield from change([Guard("h", bucket(id16), id16, text)], command)
            return True
        return False

    def delete(self, ended: Sequence[JobRow]) -> Steps[list[JobRow]]:  # noqa: D102
        refused: list[JobRow] = []
        left = list(ended)
        while left:
            some, left = left[:AT_ONCE], left[AT_ONCE:]
            words: list[Word] = []
            for row in some:
                record = unpack(token_of(row).record)
                words += (set_of(record), member(row.seq, id_of(row.id)), score_of(record))
            verdicts: bytes = yield ScriptCall(DELETE, words)
            if not verdicts:  # a batch has the lock; a restart of the verb would forget what is deleted already
                yield from wait_for_batch()
                return [*refused, *some, *left]
            refused += [row for row, verdict in zip(some, verdicts, strict=True) if verdict in b"02"]
            left += [row for row, verdict in zip(some, verdicts, strict=True) if verdict == ord("-")]
        return refused

    def prune(self, state: JobState, keep: timedelta, limit: int) -> Steps[int]:  # noqa: D102
        return (yield from retention.prune(self, state, keep, limit, self._completed_bytes))

    def prune_records(self, *, counts: timedelta | None, workers: timedelta) -> Steps[None]:  # noqa: D102
        yield from queue_lists.prune_records(counts, workers)
        yield from retention.prune_names(self)

    # -- unique keys

    def take_keys(self, claims: Sequence[UniqueClaim], *, again: bool = False) -> Steps[TakenKeys]:  # noqa: D102
        return (yield from unique_keys.take_keys(claims, again=again))

    def hold_keys(self, keys: Sequence[UniqueKey]) -> Steps[None]:  # noqa: D102
        yield from unique_keys.hold_keys(keys)

    def drop_keys(self, keys: Sequence[UniqueKey]) -> Steps[None]:  # noqa: ARG002, D102
        (yield from pending()).take()  # nothing was written

    def replace(self, now: int, replacements: Sequence[Replacement]) -> Steps[list[Replacement]]:  # noqa: ARG002, D102
        collected = yield from pending()
        groups: list[Group] = []
        for old, new, payload in replacements:
            body = yield from self.body(id_of(old.id), token_of(old).record)
            groups.append(replacing(old, new, payload, body))
            if old.limit_key is not None:
                yield from self.fill([key_set_of(old)])
        yield from became_ready()
        if collected.batch is None:
            for group in groups:
                collected.add(group)
            return []
        verdicts: list[bool] = []
        for some in pieces_of(groups, AT_ONCE, lambda group: size_of(group.words())):
            verdicts += yield from write(some)
        return [each for each, done in zip(replacements, verdicts, strict=True) if not done]

    def prune_keys(self, limit: int) -> Steps[None]:  # noqa: D102
        yield from unique_keys.prune_keys(limit)


def _key(item: Finish) -> Key:
    return item.lease.seq, item.lease.fence


def key_set_of(row: JobRow) -> bytes:
    """Return the name of a job's key set."""
    return unpack(token_of(row).record).key_set(row.queue)


def _cleaned(each: Change) -> Change:
    """Return a change whose texts can be encoded."""
    new, attempt = each.new, each.attempt
    if new.reason is not None or new.cancel_reason is not None:
        new = new._replace(reason=clean(new.reason or ""), cancel_reason=clean(new.cancel_reason or "") or None)
        each = each._replace(new=new)
    if attempt is not None and attempt.failure is not None:
        failure = attempt.failure
        words = {name: clean(getattr(failure, name)) for name in ("error_class", "message", "traceback", "signature")}
        each = each._replace(attempt=attempt._replace(failure=msgspec.structs.replace(failure, **words)))
    return each


_LISTS: dict[str, Callable[..., Steps[list[Any]]]] = {
    **job_lists.LISTS,
    **queue_lists.LISTS,
    **children.LISTS,
    **unique_keys.LISTS,
    **limit_keys.LISTS,
}
