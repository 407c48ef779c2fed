"""Children and parents on Redis: each child has a field with its parents, each parent a set of its children.

A link is a member, seq and id, so a new job with the id of a deleted one is not taken for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from graphlib import TopologicalSorter
from typing import Any, NamedTuple

from holdfast.backends.redis.job_reads import ID, JobReads, StoredJob, ids_by_seq, result_of
from holdfast.backends.redis.record import (
    CANCELLED,
    COMPLETED,
    FAILED,
    RUNNING,
    STATES,
    WAITING,
    bucket,
    id_of,
    member,
    seq_of,
    text_of,
    token_of,
    unpack,
)
from holdfast.backends.redis.scripts import RESERVE_SEQS
from holdfast.backends.redis.steps import Guard, Pending, ScriptCall, pending, read, read_many
from holdfast.store.job_rows import JobRow, NewLink
from holdfast.store.steps import Steps, became_ready

_ENTRY = 25
WAITS, _PARENT = 4, 8  # of the kind of a new job: it waits for parents; others wait for it; see `lua/insert.lua`
KIND_AT = 28
_PARENTS, _CHILDREN = 500, 2000  # that one step reads


class Links(NamedTuple):
    """The parents of a child, as members, in the order of its enqueue; `broken` because of which it was cancelled."""

    run_anyway: bool
    parents: tuple[bytes, ...]
    broken: tuple[bytes, ...]


NO_LINKS = Links(run_anyway=False, parents=(), broken=())


def _unpack(text: bytes | None) -> Links:
    if not text:
        return NO_LINKS
    entries = [text[at : at + _ENTRY] for at in range(1, len(text), _ENTRY)]
    return Links(
        text[0] == 1, tuple(each[:-1] for each in entries), tuple(each[:-1] for each in entries if each[-1] == 1)
    )


def _links(ids: Sequence[bytes]) -> Steps[dict[bytes, Links]]:
    """Return the parents of jobs, by id."""
    _, found = yield from read_many([("HGET", bucket(id16), id16 + b"g") for id16 in ids])
    return {id16: _unpack(text) for id16, text in zip(ids, found, strict=True)}


def _members(seqs: Sequence[int]) -> Steps[list[bytes]]:
    """Return the members of these seqs, whether the jobs still exist or not."""
    found = yield from ids_by_seq(seqs)
    return [member(seq, id16) for seq, id16 in zip(seqs, found, strict=True) if len(id16) == ID]


def _children(members: Sequence[bytes]) -> Steps[list[list[bytes]]]:
    """Return the children of each of these jobs; not too many in one step."""
    _, sizes = yield from read_many([("SCARD", b"h" + name) for name in members])
    sets: list[list[bytes]] = []
    while len(sets) < len(members):
        start, end = len(sets), len(sets) + 1
        if sizes[start] > _CHILDREN:
            sets.append((yield from _many_children(members[start])))
            continue
        while end < len(members) and end - start < _PARENTS and sum(sizes[start : end + 1]) <= _CHILDREN:
            end += 1
        _, found = yield from read(*(("SMEMBERS", b"h" + name) for name in members[start:end]))
        sets += found
    return sets


def _many_children(name: bytes) -> Steps[list[bytes]]:
    """Return the children of one job, page by page; one that is linked meanwhile may be missing."""
    children: dict[bytes, None] = {}
    cursor = b""
    while cursor != b"0":
        _, ((cursor, found),) = yield from read(("SSCAN", b"h" + name, cursor or 0, "COUNT", _CHILDREN))
        children |= dict.fromkeys(found)
    return list(children)


def _has_ended(job: StoredJob | None) -> bool:
    """Whether a parent has ended, or was deleted."""
    return job is None or job.record.code >= COMPLETED


def link(rows: JobReads, links: Sequence[NewLink], inserted: Sequence[str], decide: Sequence[str]) -> Steps[None]:  # noqa: ARG001
    """Link children to their parents, together with the insertion of the children."""
    collected = yield from pending()
    if not links:
        return
    last: int = yield ScriptCall(RESERVE_SEQS, [len(collected.jobs)], is_kept_back=True)
    collected.base = last - len(collected.jobs)
    collected.seqs = {job_id: collected.base + 1 + at for job_id, at in collected.places.items()}

    def named(job_id: str) -> bytes:
        seq = collected.seqs.get(job_id)
        return member(unpack(collected.locked[job_id]).seq if seq is None else seq, id_of(job_id))

    for job_id in inserted:
        at = collected.places[job_id]
        job = collected.jobs[at]
        collected.jobs[at] = job[:KIND_AT] + bytes([job[KIND_AT] | _PARENT]) + job[KIND_AT + 1 :]
    children: dict[str, list[NewLink]] = {}
    for each in links:
        children.setdefault(each.child_id, []).append(each)
    for child_id, own in children.items():
        id16 = id_of(child_id)
        parents = [named(each.parent_id) for each in sorted(own, key=lambda each: each.place)]
        text = bytes([own[0].run_anyway]) + b"".join(name + b"\0" for name in parents)
        collected.commands.append(("HSET", bucket(id16), id16 + b"g", text))
        collected.commands += [("SADD", b"h" + name, named(child_id)) for name in parents]
    if collected.batch is not None:  # a parent in the store may end before its child is inserted
        graph = {child_id: [each.parent_id for each in own] for child_id, own in children.items()}
        waiting = [job_id for job_id in TopologicalSorter(graph).static_order() if _waits(collected, job_id)]
        collected.order = waiting[::-1]  # and one of this call cannot: its children are inserted before
        decide = [job_id for job_id in waiting if not set(graph[job_id]) <= collected.places.keys()]
    changed = collected.commands if collected.batch is None else collected.late
    changed += [("CHANGED", named(child_id)) for child_id in decide]
    if decide:
        yield from became_ready(parents_changed=True)


def _waits(collected: Pending, job_id: str) -> bool:
    """Whether a job of this call waits for its parents."""
    return job_id in collected.places and bool(collected.jobs[collected.places[job_id]][KIND_AT] & WAITS)


def decidable(found: Sequence[JobRow]) -> Steps[list[JobRow]]:
    """Return those rows that are blocked by parents, or cancelled because of one, by seq."""
    links = yield from _links([id_of(row.id) for row in found])
    kept: list[JobRow] = []
    for row in found:
        code = unpack(token_of(row).record).code
        if code == WAITING or (code == CANCELLED and links[id_of(row.id)].broken):
            kept.append(row)
    return sorted(kept, key=lambda row: row.seq)


def _changed_parents(rows: JobReads, limit: int) -> Steps[list[Any]]:  # noqa: ARG001
    _, (found,) = yield from read(("ZRANGE", "changed", 0, limit - 1))
    return [(seq_of(name), seq_of(name[8:])) for name in found]


def _unsettled_children(rows: JobReads, seqs: Sequence[int], limit: int) -> Steps[list[Any]]:
    members = yield from _members(seqs)
    sets = yield from _children(members)
    relatives = yield from rows.by_members([*members, *(child for children in sets for child in children)])
    waiting = {name: job for name, job in relatives.items() if job.record.code in {WAITING, CANCELLED}}
    links = yield from _links([job.id16 for job in waiting.values()])
    parents = yield from rows.by_members(parent for each in links.values() for parent in each.parents)
    unsettled: list[Any] = []
    for name, job in sorted(waiting.items()):
        own = links[job.id16]
        is_blocked = job.record.code == WAITING
        if not own.parents or not (is_blocked or own.broken):
            continue
        unfinished = any(not _has_ended(parents.get(parent)) for parent in own.parents)
        broken = next((parent for parent in own.parents if _is_broken(parents.get(parent))), None)
        stays = unfinished and (broken is None or own.run_anyway)
        if stays if is_blocked else (broken is not None and not own.run_anyway):
            continue
        cause = None if broken is None else parents.get(broken)
        unsettled.append(
            (
                seq_of(name),
                is_blocked,
                unfinished,
                own.run_anyway,
                None if broken is None else seq_of(broken),
                None if cause is None else text_of(cause.id16),
                None if cause is None else str(STATES[cause.record.code]),
            )
        )
    return unsettled[:limit]


def _is_broken(job: StoredJob | None) -> bool:
    return job is None or job.record.code in {FAILED, CANCELLED}


def _family_of(rows: JobReads, seq: int) -> Steps[list[Any]]:
    for name in (yield from _members([seq])):
        _, (number,) = yield from read(("SCARD", b"h" + name))
        # If a child is linked before this verb writes, the verb must know of it.
        (yield from pending()).guards.append(Guard("SCARD", b"h" + name, "", number))
        own = (yield from _links([name[8:]]))[name[8:]]
        parents = yield from rows.by_members(own.parents)
        unfinished = any(not _has_ended(parents.get(parent)) for parent in own.parents)
        return [(number > 0, bool(own.parents), unfinished)]
    return [(False, False, False)]


def _needed_parents(rows: JobReads, seqs: Sequence[int]) -> Steps[list[Any]]:
    members = yield from _members(seqs)
    sets = yield from _children(members)
    states = yield from rows.by_members(child for children in sets for child in children)
    return [
        (seq_of(name),)
        for name, children in zip(members, sets, strict=True)
        if any(child in states and not _has_ended(states[child]) for child in children)
    ]


def _parents_seen(rows: JobReads, seq: int) -> Steps[list[Any]]:
    own, states = yield from _parents(rows, seq)
    return [_seen(states.get(parent)) for parent in own.parents]


def _parents(rows: JobReads, seq: int) -> Steps[tuple[Links, dict[bytes, StoredJob]]]:
    found = yield from rows.by_seq([seq])
    if not found:
        return NO_LINKS, {}
    own = (yield from _links([found[0].id16]))[found[0].id16]
    return own, (yield from rows.by_members(own.parents))


def _seen(job: StoredJob | None) -> tuple[str, str, str | None, int | None]:
    if job is None:
        return "", "deleted", None, None
    state = str(STATES[job.record.code]) if _has_ended(job) else "unfinished"
    return text_of(job.id16), state, result_of(job), job.record.seq


def _unfinished_parents(rows: JobReads, seq: int, limit: int) -> Steps[list[Any]]:
    own, states = yield from _parents(rows, seq)
    waited = [states[parent] for parent in own.parents if parent in states and not _has_ended(states[parent])]
    return [(text_of(job.id16), job.record.seq, job.names.task, job.record.code == RUNNING) for job in waited[:limit]]


def _links_of(rows: JobReads, seqs: Sequence[int]) -> Steps[list[Any]]:
    members = yield from _members(seqs)
    sets = yield from _children(members)
    existing = yield from rows.by_members([*members, *(child for children in sets for child in children)])
    links = yield from _links([job.id16 for job in existing.values()])
    wanted = set(seqs)
    return [
        (seq_of(child), seq_of(parent))
        for child, job in sorted(existing.items())
        for parent in links[job.id16].parents
        if seq_of(child) in wanted or seq_of(parent) in wanted
    ]


def _graph_jobs(rows: JobReads, seqs: Sequence[int]) -> Steps[list[Any]]:
    found = yield from rows.by_seq(seqs)
    return [
        (text_of(job.id16), job.record.seq, job.names.queue, job.names.task, str(STATES[job.record.code]))
        for job in found
    ]


LISTS: dict[str, Callable[..., Steps[list[Any]]]] = {
    "changed_parents": _changed_parents,
    "unsettled_children": _unsettled_children,
    "family_of": _family_of,
    "needed_parents": _needed_parents,
    "parents_seen": _parents_seen,
    "unfinished_parents": _unfinished_parents,
    "links_of": _links_of,
    "graph_jobs": _graph_jobs,
}
