"""The port's verbs for jobs, on SQLite: each one transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from datetime import timedelta
from typing import TypeVar

import msgspec

from holdfast.backends.sqlite.clock import Steady
from holdfast.backends.sqlite.connection import Connection, Tx
from holdfast.backends.sqlite.execute import direct
from holdfast.backends.sqlite.verbs import claim as claiming
from holdfast.backends.sqlite.verbs import finish as finishing
from holdfast.backends.sqlite.verbs import insight, leases, nodes, operate, rescue, upkeep
from holdfast.backends.sqlite.verbs.enqueue import enqueue
from holdfast.backends.sqlite.verbs.leases import extend_many
from holdfast.backends.sqlite.write_queue import WriteQueue
from holdfast.model.allocation import NodeKey, Timing
from holdfast.model.job import Lease, NewJob
from holdfast.store.steps import Runner
from holdfast.store.stream_values import Beat
from holdfast.store.values import (
    Cancellation,
    Claim,
    ClaimRequest,
    Extension,
    Finish,
    Outstanding,
    Promotion,
    Rescued,
    Retention,
    Standing,
    Verdict,
    WorkerBeat,
)

T = TypeVar("T")


class SqliteJobs:
    """`JobStore` on SQLite."""

    def __init__(self, runner: Runner, notify: Callable[[], None], steady: Steady | None = None) -> None:
        self._runner = runner
        self._notify = notify
        self._steady = steady
        self._was_full = False

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[bool]:  # noqa: D102 - the port states the contracts
        created = await self._runner.write(direct(lambda tx: enqueue(tx, jobs)))
        self._notify()
        return created

    async def claim(self, request: ClaimRequest) -> Claim:  # noqa: D102
        # Looking first costs a snapshot; an idle worker that polls must not take the write lock for nothing. After a
        # full claim there is probably more, so a busy one does not look.
        if not self._was_full and not await self._runner.read(direct(lambda tx: claiming.claimable(tx, request))):
            return Claim([])
        claim = await self._runner.write(direct(lambda tx: claiming.claim(tx, request)))
        self._was_full = len(claim.jobs) >= request.limit
        return claim

    async def _end(self, work: Callable[[Tx], T]) -> T:
        """End jobs; if that makes others ready, wake whoever waits for work."""

        def end(tx: Tx) -> tuple[T, bool]:
            return work(tx), tx.brought_up

        result, brought_up = await self._runner.write(direct(end))
        if brought_up:
            self._notify()
        return result

    async def finish(self, finishes: Sequence[Finish]) -> list[Verdict]:  # noqa: D102
        return await self._end(lambda tx: finishing.finish(tx, finishes))

    async def release(self, leases: Sequence[Lease], *, started: bool) -> list[Verdict]:  # noqa: D102
        verdicts = await self._runner.write(direct(lambda tx: rescue.release(tx, leases, started=started)))
        self._notify()
        return verdicts

    async def unheard(self, worker_id: str, after: int) -> list[Lease]:  # noqa: D102
        return await self._runner.read(direct(lambda tx: leases.unheard(tx, worker_id, after)))

    async def promote(self, limit: int) -> Promotion:  # noqa: D102
        next_due = await self._runner.read(direct(upkeep.next_due))
        if next_due is None or next_due > timedelta(0):
            return Promotion(0, next_due)
        promotion = await self._runner.write(direct(lambda tx: upkeep.promote(tx, limit)))
        self._notify()
        return promotion

    async def rescue(self, unbroken: timedelta | None, limit: int) -> list[Rescued]:  # noqa: D102
        # No look before the write lock is taken, though nearly always there is nothing: the caller's access counts for
        # rescue only if it could write, as those who extend must.
        asked_at = time.monotonic()

        def take(tx: Tx) -> list[Rescued]:
            now = time.monotonic()
            waited = timedelta(seconds=now - asked_at)
            if unbroken is None or self._steady is None:
                return rescue.rescue(tx, unbroken, limit, waited=waited)
            # Half of it, as half a lease of access is asked for: the living extend at about half a lease.
            return rescue.rescue(tx, min(unbroken, self._steady.since(tx.now, now) / 2), limit, waited=waited)

        rescued = await self._runner.write(direct(take))
        if rescued:
            self._notify()
        return rescued

    async def rescue_worker(self, worker_id: str, reason: str, limit: int) -> list[Rescued]:  # noqa: D102
        rescued = await self._runner.write(direct(lambda tx: rescue.rescue_worker(tx, worker_id, reason, limit)))
        self._notify()
        return rescued

    async def reset(self, job_id: str) -> bool:  # noqa: D102
        done = await self._runner.write(direct(lambda tx: operate.reset(tx, job_id)))
        self._notify()
        return done

    async def cancel(self, job_id: str, reason: str) -> Cancellation:  # noqa: D102
        return await self._end(lambda tx: operate.cancel(tx, job_id, reason))

    async def retry(self, job_id: str) -> bool:  # noqa: D102
        done = await self._runner.write(direct(lambda tx: operate.retry(tx, job_id)))
        self._notify()
        return done

    async def progress(self, lease: Lease, percent: float | None, note: str | None) -> Verdict:  # noqa: D102
        return await self._runner.write(direct(lambda tx: leases.progress(tx, lease, percent, note)))

    async def extend(self, lease: Lease, duration: timedelta) -> Verdict:  # noqa: D102
        return await self._runner.write(direct(lambda tx: leases.extend_one(tx, lease, duration)))

    async def verify(self, lease: Lease) -> Standing:  # noqa: D102
        return await self._runner.write(direct(lambda tx: finishing.standing(tx, lease)))

    async def prune(self, retention: Retention, limit: int) -> int:  # noqa: D102
        return await self._runner.write(direct(lambda tx: upkeep.prune(tx, retention, limit)))

    async def outstanding(self, tasks: Sequence[str], queues: Sequence[str] | None) -> Outstanding:  # noqa: D102
        return await self._runner.read(direct(lambda tx: insight.outstanding(tx, tasks, queues)))

    async def result(self, job_id: str) -> str | None:  # noqa: D102
        return await self._runner.read(direct(lambda tx: tx.value("job_result", {"id": job_id})))


class SqliteExtender:
    """`Extender` on SQLite: the extending thread's own connection, and its right to go first at the gate."""

    def __init__(
        self,
        connection: Connection,
        gate: WriteQueue,
        *,
        owns: bool,
        unheard: Callable[[Connection], AbstractContextManager[None]],
    ) -> None:
        self._connection = connection
        self._gate = gate
        self._owns = owns
        self._unheard = unheard

    def _write(self, work: Callable[[Tx], T]) -> T:
        with self._gate.passage(first=True), self._connection.write() as tx:
            return work(tx)

    def extend(self, leases: Sequence[Lease], duration: timedelta) -> Extension:  # noqa: D102
        return self._write(lambda tx: extend_many(tx, leases, duration))

    def _read(self, work: Callable[[Tx], T]) -> T:
        if not self._owns:  # in memory there is one connection for all
            return self._write(work)
        with self._connection.read() as tx:
            return work(tx)

    def cancel_asked(self, worker_id: str) -> list[Lease]:  # noqa: D102
        return self._read(lambda tx: leases.cancel_asked(tx, worker_id))

    def beat(self, beat: WorkerBeat) -> None:  # noqa: D102
        self._write(lambda tx: leases.beat(tx, beat))

    def node_heartbeat(self, node: NodeKey, timing: Timing) -> Beat:  # noqa: D102
        sent = time.monotonic()

        with self._gate.passage(first=True), ExitStack() as after, self._connection.write() as tx:
            after.enter_context(self._unheard(self._connection))  # a heartbeat is no notification to its own node
            waited = timedelta(seconds=time.monotonic() - sent)
            return msgspec.structs.replace(nodes.beat(tx, node, timing), waited=waited)

    def owned(self, node: NodeKey) -> Beat:  # noqa: D102
        return self._read(lambda tx: nodes.owned(tx, node))

    def close(self) -> None:  # noqa: D102
        if self._owns:
            self._connection.close()
