"""Jobs on Redis: the shared verbs over rows, with an enqueue and a claim that are one script each."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TypeVar

from holdfast.backends.redis import claim
from holdfast.backends.redis.children import WAITS
from holdfast.backends.redis.handler_transaction import RedisTransaction
from holdfast.backends.redis.job_rows import RedisJobRows
from holdfast.backends.redis.record import bucket, id_of, pack_body
from holdfast.backends.redis.scripts import ENQUEUE, READ
from holdfast.backends.redis.staging import enqueue_in_pieces, under_lock
from holdfast.backends.redis.steps import PIECE_BYTES, ScriptCall, pending, pieces_of, read_many, sized
from holdfast.backends.redis.unique_keys import recorded
from holdfast.errors import OutcomeUnknown, StoreUnavailable, Unsupported
from holdfast.model.instants import span_micros
from holdfast.model.job import NewJob, parents_of, unique_of
from holdfast.model.turn import due_at, turn_of
from holdfast.store.handler_transaction import entered, is_inside
from holdfast.store.jobs_over_rows import JobsOverRows
from holdfast.store.steps import Runner, Steps, Verb, became_ready
from holdfast.store.values import Claim, ClaimRequest, Enqueued
from holdfast.store.verbs.enqueue import Insert, enqueue

T = TypeVar("T")
CHANGES_INSIDE = "end or change other jobs inside ctx.transaction()"
NO_CHANGES_INSIDE = "of the calls on jobs only an enqueue joins it; make the call before the block, or after it"

_IN_ONE = 500  # jobs that one script enqueues; more of them, or large ones, are staged first
_HEAD = struct.Struct(">16sIiIBqH")
_DELAYED, _INSTANT = 1, 2  # see `lua/insert.lua`


def pack_job(job: NewJob, lane: int) -> bytes:
    """Return a job as `lua/insert.lua` reads it."""
    kind, when = 0, 0
    if job.run_at is not None:
        kind, when = _INSTANT, turn_of(due_at(job, 0), job.priority)
    elif job.delay is not None:
        kind, when = _DELAYED, span_micros(job.delay)
    if job.conditions is not None and parents_of(job):
        kind += WAITS
    key = (job.order_key or "" if job.limit_key is None else f"\0{job.limit_key}").encode()
    head = _HEAD.pack(id_of(job.id), lane, job.priority, job.max_attempts, kind, when, len(key))
    return head + key + pack_body(job.payload, job.headers, job.timeout)


class RedisJobs(JobsOverRows):
    """`JobStore` on Redis."""

    def __init__(self, runner: Runner, rows: RedisJobRows, ended: Callable[[], None] | None = None) -> None:
        super().__init__(runner, rows, ended)
        self._directory = rows.directory
        self._redis_rows = rows

    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        """Enqueue jobs; inside a handler's transaction, together with its end."""
        transaction = entered(self._directory.owner, RedisTransaction)
        if transaction is not None:
            return await transaction.enqueue(jobs, self._insert)
        conditions = [job.conditions for job in jobs if job.conditions is not None]
        size = len(jobs) + sum(len(each.after) for each in conditions)
        if not conditions or (size <= _IN_ONE and sum(len(job.payload) for job in jobs) <= PIECE_BYTES):
            answers = await super().enqueue(jobs)
        else:
            answers = await self._change(lambda: under_lock(enqueue(self._redis_rows, jobs, self._insert), size))
        if self._directory.is_replicated and not self._is_joined and conditions:
            ids = [answer if isinstance(answer, str) else job.id for job, answer in zip(jobs, answers, strict=True)]
            try:
                await self._runner.look(lambda: _confirm(ids))
            except StoreUnavailable as error:
                raise OutcomeUnknown(str(error)) from error
        return answers

    async def _change(self, verb: Verb[T], *, briefly: bool = False) -> T:
        if is_inside(self._directory.owner):
            raise Unsupported(f"redis cannot {CHANGES_INSIDE}: {NO_CHANGES_INSIDE}")
        return await super()._change(verb, briefly=briefly)

    async def enqueue_plain(self, jobs: Sequence[NewJob]) -> list[bool]:  # noqa: D102 - the port states the contracts
        return await self._runner.write(lambda: self._enqueue(jobs)) if jobs else []

    async def inserter(self, jobs: Sequence[NewJob]) -> Insert:  # noqa: ARG002, D102
        return self._insert

    async def claim(self, request: ClaimRequest) -> Claim:  # noqa: D102
        return await self._runner.write(lambda: claim.claim(self._redis_rows, request))

    def _packed(self, jobs: Sequence[NewJob]) -> Steps[list[bytes]]:
        lanes, stamp = yield from self._directory.numbers((job.queue, job.task) for job in jobs)
        (yield from pending()).lanes = stamp
        keys = {(lanes[job.queue, job.task], job.limit_key) for job in jobs if job.limit_key is not None}
        yield from self._redis_rows.fill([f"\0{lane}\0{key}".encode() for lane, key in keys])
        return [pack_job(job, lanes[job.queue, job.task]) for job in jobs]

    def _enqueue(self, jobs: Sequence[NewJob]) -> Steps[list[bool]]:
        packed = yield from self._packed(jobs)
        answers: bytes
        if len(list(pieces_of(packed, _IN_ONE, len))) > 1:
            answers = yield from enqueue_in_pieces(packed)
        else:
            answers = yield ScriptCall(ENQUEUE, packed, lanes=(yield from pending()).lanes)
        yield from became_ready()
        return [answer == ord("1") for answer in answers]

    def _insert(self, jobs: Sequence[NewJob]) -> Steps[list[bool]]:
        """Insert jobs together with what else the verb writes."""
        packed = yield from self._packed(jobs)
        ids = [id_of(job.id) for job in jobs]
        _, found = yield from read_many([("HGET", bucket(id16), id16) for id16 in ids])
        collected = yield from pending()
        answers: list[bool] = []
        for job, text, known in zip(jobs, packed, found, strict=True):
            is_new = known is None and job.id not in collected.places
            answers.append(is_new)
            if is_new:
                collected.places[job.id] = len(collected.jobs)
                collected.jobs.append(text)
                unique = unique_of(job)
                if unique is not None:
                    collected.commands.append(recorded(id_of(job.id), job.task, unique))
        yield from became_ready()
        return answers


def _confirm(ids: Sequence[str]) -> Steps[None]:
    """Wait until replicas have these jobs; raises `OutcomeUnknown` if the server has lost one: after a failover."""
    for start in range(0, len(ids), _IN_ONE):
        words = sized(("HEXISTS", bucket(id16), id16) for id16 in map(id_of, ids[start : start + _IN_ONE]))
        _, *found = yield ScriptCall(READ, words, is_confirmed=True)
        if not all(found):
            raise OutcomeUnknown("the primary was replaced while jobs were enqueued: repeat it with the same ids")
