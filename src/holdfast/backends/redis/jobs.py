"""Jobs on Redis: the shared verbs over rows, with an enqueue and a claim that are one script each."""

from __future__ import annotations

import secrets
import struct
from collections.abc import Callable, Sequence

from holdfast.backends.redis import claiming
from holdfast.backends.redis.job_rows import AT_ONCE, LIMITS_PER_KEY, NO_LIMITS_PER_KEY, RedisJobRows
from holdfast.backends.redis.record import bucket, id_of, pack_body
from holdfast.backends.redis.scripts import ENQUEUE, SPREAD, STAGE
from holdfast.backends.redis.steps import ScriptCall, Word, pending, read, read_many
from holdfast.backends.redis.unique_keys import recorded
from holdfast.errors import Unsupported
from holdfast.model.instants import span_micros
from holdfast.model.job import NewJob, parents_of, unique_of
from holdfast.model.turn import due_at, turn_of
from holdfast.store.jobs_over_rows import JobsOverRows
from holdfast.store.steps import Runner, Steps, became_ready
from holdfast.store.values import Claim, ClaimRequest
from holdfast.store.verbs.enqueue import Insert

_IN_ONE = 500  # jobs that one script enqueues; more of them are staged first
_HEAD = struct.Struct(">16sIiIBqH")
_DELAYED, _INSTANT, _WAITS = 1, 2, 4  # see `lua/insert.lua`


def pack_job(job: NewJob, lane: int) -> bytes:
    """Return a job as `lua/insert.lua` reads it."""
    kind, when = 0, 0
    if job.run_at is not None:
        kind, when = _INSTANT, turn_of(due_at(job, 0), job.priority)
    elif job.delay is not None:
        kind, when = _DELAYED, span_micros(job.delay)
    if job.conditions is not None and parents_of(job):
        kind += _WAITS
    order_key = b"" if job.order_key is None else job.order_key.encode()
    head = _HEAD.pack(id_of(job.id), lane, job.priority, job.max_attempts, kind, when, len(order_key))
    return head + order_key + pack_body(job.payload, job.headers, job.timeout)


class RedisJobs(JobsOverRows):
    """`JobStore` on Redis."""

    def __init__(self, runner: Runner, rows: RedisJobRows, ended: Callable[[], None] | None = None) -> None:
        super().__init__(runner, rows, ended)
        self._directory = rows.directory
        self._redis_rows = rows

    async def enqueue_plain(self, jobs: Sequence[NewJob]) -> list[bool]:  # noqa: D102 - the port states the contracts
        return await self._runner.write(lambda: self._enqueue(jobs)) if jobs else []

    async def inserter(self, jobs: Sequence[NewJob]) -> Insert:  # noqa: ARG002, D102
        return self._insert

    async def claim(self, request: ClaimRequest) -> Claim:  # noqa: D102
        return await self._runner.write(lambda: claiming.claim(self._redis_rows, request))

    def _packed(self, jobs: Sequence[NewJob]) -> Steps[list[bytes]]:
        if any(job.limit_key is not None for job in jobs):
            raise Unsupported(f"redis cannot {LIMITS_PER_KEY}: {NO_LIMITS_PER_KEY}")
        lanes = yield from self._directory.numbers((job.queue, job.task) for job in jobs)
        return [pack_job(job, lanes[job.queue, job.task]) for job in jobs]

    def _enqueue(self, jobs: Sequence[NewJob]) -> Steps[list[bool]]:
        packed = yield from self._packed(jobs)
        answers: bytes = yield from _staged(packed) if len(packed) > _IN_ONE else _at_once(packed)
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


def _at_once(packed: Sequence[bytes]) -> Steps[bytes]:
    answers: bytes = yield ScriptCall(ENQUEUE, packed)
    return answers


def _staged(packed: Sequence[bytes]) -> Steps[bytes]:
    """Enqueue many jobs, all or none, without a script that takes long.

    They are kept aside, which has no effect until the last call says that they are complete. From then on they are
    enqueued: if this process ends before it has inserted them, workers go on with it.
    """
    name = secrets.token_bytes(16)
    for start in range(0, len(packed), _IN_ONE):
        is_last = start + _IN_ONE >= len(packed)
        words: list[Word] = [name, int(is_last), *packed[start : start + _IN_ONE]]
        yield ScriptCall(STAGE, words, is_kept_back=not is_last)
    while True:
        yield ScriptCall(SPREAD, [AT_ONCE])
        _, (left, answers) = yield from read(("EXISTS", b"g" + name), ("GET", b"v" + name))
        if not left:
            return answers or b"1" * len(packed)
